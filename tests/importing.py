"""Sources for importers, written by other means than the package's, and what becomes of them."""

import io
import itertools
import pickle
import struct
import tarfile

import h5py
import numpy as np
import pytest
from encoding import pillow_bytes

from smtdist.data.importers.images import open_listing
from smtdist.data.importers.items import ImportOptions
from smtdist.data.importers.run import import_images
from smtdist.errors import DataError

RNG = np.random.default_rng(7)


def pixels(*shape, dtype=np.uint8):
    return RNG.integers(0, 256, shape).astype(dtype)


def png(image):
    return pillow_bytes(image)


def jpeg(image):
    return pillow_bytes(image, "JPEG", quality=90)


def imported(sources, out, kind=None, **options):
    sources, chosen = sources if isinstance(sources, list) else [sources], ImportOptions(**options)
    return import_images(open_listing(sources, kind, chosen), out, chosen)


def contents(path, group="train"):
    """All datasets and attributes of a group."""
    with h5py.File(path) as file:
        found = {name: dataset[()] for name, dataset in file[group].items()}
        found |= {f"@{name}": value for name, value in file[group].attrs.items()}
    return found


def parts(path, group="train"):
    """The encoded images of a file."""
    found = contents(path, group)
    data = found["bytes"].tobytes()
    return [data[start:stop] for start, stop in itertools.pairwise(found["offsets"])]


def tree(root, images, ending="png"):
    """Write {class: [image or bytes]} as a folder tree."""
    for name, members in images.items():
        (root / name).mkdir(parents=True)
        for number, image in enumerate(members):
            data = image if isinstance(image, bytes) else png(image)
            (root / name / f"{number:04}.{ending}").write_bytes(data)
    return root


def refused(sentence, *arguments, **options):
    with pytest.raises(DataError, match=sentence) as caught:
        imported(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def draw_classes(tmp_path):
    """Three classes of seven colour images, one class a level deeper."""
    images = {name: list(pixels(7, 6, 5, 3)) for name in ("cat", "bird", "ant/deep")}
    return tree(tmp_path / "tree", images), images


def idx(array, code=8):
    return (
        struct.pack(">HBB", 0, code, array.ndim)
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def planes(images):
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def cifar_pickle(path, images, labels, key=b"labels"):
    content = {b"batch_label": b"b", key: [int(label) for label in labels], b"data": planes(images)}
    path.write_bytes(pickle.dumps(content, protocol=2))


def shard(path, members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
