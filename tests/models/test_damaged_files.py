"""Files of every kind whose arrays are short, narrow, gone or not finite: refused when they are read, in one sentence."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from calling import refused, run

from benchmarks.same_bits.data import make_data
from smtdist.errors import ModelError
from smtdist.report.facts import facts_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
CODED = "patch=4 dictionary=12 rounds=2 n_components=4 positions=12 stride=2 pool_size=2 feature="
CLIPS = "patch=4 length=4 places=2 atoms=12 rounds=1 batch=30 n_components=4 penalty=0.2"
POINTS = "points fit data/tables.h5 --dataset more --context noise --size 12 --components 3"
FITS = {
    **{name: f"fit data/images.h5 --dataset 0/images {CODED}{name}" for name in ("l1", "s3c", "omp")},
    "second-order": "fit data/images.h5 --dataset 0/images patch=3 dictionary=12 n_components=4 pool_size=2 threshold=0.4 "
    "order=2 zero_code=leave_out",
    "points": POINTS,
    "points-rbf": f"{POINTS} --features rbf",
    "video": f"video fit data/clips.h5 --clip one {CLIPS}",
}
"""Files as this version writes them; those of other kinds are fixtures."""
OLDER = ("smt-gq", "smt-vq", "s3c", "sparse", "coded-l1", "points", "video", "words", "concepts")
KERNELS = ("kernel-autoencoder", "kernel-contrastive", "kernel-spectral")
KINDS = (*FITS, *(f"older-{name}" for name in (*OLDER, *KERNELS)))

MAY_LACK = ("source_digest", "context_scatter", "second_moment")
"""Of some images: hashes, that older files lack, and what follows from other sums."""
UNTOLD = ("older-kernel-contrastive:embedding/eigenvalues", "older-concepts:concepts")
"""Arrays of which nothing else in the file says how many entries they have."""
COPY = "second-order:statistics/context_scatter"
"""For readers without this package; what is read are its limbs."""
HISTORY = "sweeps/"
"""How a search went, whose numbers nothing is computed from."""

RAW = ("Unable to", "Can't", "zip()", "object '")
"""How HDF5 and Python say it."""

DAMAGE = {
    "gone": lambda values: None,
    "short": lambda values: values[:-1] if values.ndim else None,
    "narrow": lambda values: values[..., :-1] if values.ndim > 1 else None,
    "nan": lambda values: spoilt(values, np.nan),
    "inf": lambda values: spoilt(values, -np.inf),
}


def spoilt(values, number):
    if values.dtype.kind != "f":
        return None
    values = values.copy()
    values[(-1,) * values.ndim] = number
    return values


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    at = tmp_path_factory.mktemp("damaged")
    make_data(at / "data")
    for name in (*OLDER, *KERNELS):
        shutil.copy(FIXTURES / "models" / f"{name}.h5", at / f"older-{name}.h5")
    for name, command in FITS.items():
        words = [at / word if word.startswith("data/") else word for word in command.split()]
        words = [part for word in words for part in (("--set", word) if "=" in str(word) else (word,))]
        run(*words, "--out", at / f"{name}.h5", "--quiet")
    return at


def arrays_of(path):
    """Return the arrays of a file by name, without what stands for dimensions."""
    found = {}

    def take(name, item):
        if isinstance(item, h5py.Dataset) and b"not a netCDF variable" not in item.attrs.get("NAME", b""):
            found[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(take)
    return found


def damage(path, name, how):
    """Damage one array of a file; False where it cannot be damaged so."""
    with h5py.File(path, "a") as file:
        kind, found = file[name].dtype, DAMAGE[how](np.asarray(file[name][()]))
        if found is None and how != "gone":
            return False
        del file[name]
        if found is not None:
            file.create_dataset(name, data=found, dtype=kind)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_every_damaged_array_is_refused(kind, folder, tmp_path):
    whole, path = folder / f"{kind}.h5", tmp_path / "m.h5"
    arrays, seen = arrays_of(whole), 0
    assert len(arrays) > 1
    for name in arrays:
        for how in DAMAGE:
            leaf = name.rpartition("/")[2]
            fine = how == "gone" and kind.startswith(("older-smt", "second-order")) and leaf in MAY_LACK
            fine |= how == "short" and f"{kind}:{name}" in UNTOLD
            fine |= how in ("nan", "inf") and name.startswith(HISTORY)
            fine |= how in ("nan", "inf") and f"{kind}:{name}" == COPY
            shutil.copy(whole, path)
            if fine or not damage(path, name, how):
                continue
            with pytest.raises(ModelError, match=r"not a complete .*(make it|fit it) again\.$") as caught:
                facts_of(path)
            said = str(caught.value)
            assert how in ("short", "narrow") or leaf in said, (name, how, said)
            assert not any(words in said for words in RAW), said
            seen += 1
    assert seen >= len(arrays)


IMAGES = "data/images.h5 --dataset 2/images"
COMMANDS = {
    **dict.fromkeys(
        ("l1", "s3c", "omp"), (f"transform MODEL {IMAGES} --out OUT", f"update MODEL {IMAGES} --out OUT")
    ),
    "older-smt-vq": (
        f"transform MODEL {IMAGES} --out OUT",
        f"update MODEL {IMAGES} --out OUT",
        "export MODEL --format onnx --out OUT",
    ),
    "points": (
        "points transform MODEL data/tables.h5 --dataset x --out OUT",
        "update MODEL data/tables.h5 --dataset x --out OUT",
    ),
    "video": ("video judge MODEL data/clips.h5", "update MODEL data/clips.h5 --dataset two --out OUT"),
}
"""What reads a file of a kind, beside what reads every one."""
EVERY = ("info MODEL", "report MODEL --out OUT.html", "merge MODEL --out OUT")
KNOWN = ("statistics/activity", "embedding/dead", "embedding/eigenvalues", "whitening/covariance", "points")
"""Places that ended in tracebacks."""


@pytest.mark.parametrize("kind", COMMANDS)
def test_every_command_ends_in_the_sentence(kind, folder, tmp_path):
    whole, path = folder / f"{kind}.h5", tmp_path / "m.h5"
    named = {"MODEL": path, "OUT": tmp_path / "out.h5", "OUT.html": tmp_path / "out.html"}
    for name in (name for name in arrays_of(whole) if name.endswith(KNOWN)):
        for how in ("short", "nan"):
            shutil.copy(whole, path)
            if not damage(path, name, how):
                continue
            for command in (*EVERY, *COMMANDS[kind]):
                words = [folder / word if word.startswith("data/") else word for word in command.split()]
                refused([named.get(word, word) for word in words], tmp_path, "is not a complete")
