"""Encoded images for tests, made by Pillow and laid out in HDF5 by hand: no code of the project is used."""

import io

import h5py
import numpy as np
from PIL import Image


def pillow_bytes(image, kind="PNG", mode=None, **options):
    """Encode an array (H, W), (H, W, 1) or (H, W, 3); `mode` converts it first."""
    image = np.asarray(image)
    picture = Image.fromarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image)
    room = io.BytesIO()
    (picture.convert(mode) if mode else picture).save(room, kind, **options)
    return room.getvalue()


def pillow_pixels(data, channels=3):
    """Decode with Pillow alone, to (H, W, channels)."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], channels)


def write_encoded(path, images, group="train", labels=None, attributes=(), **options):
    """Add a group of encoded images (bytes each) to an HDF5 file."""
    offsets = np.cumsum([0, *map(len, images)])
    with h5py.File(path, "a") as file:
        file.create_dataset(f"{group}/bytes", data=np.frombuffer(b"".join(images), np.uint8), **options)
        file[f"{group}/offsets"] = offsets
        if labels is not None:
            file[f"{group}/labels"] = labels
        file[group].attrs.update(dict(attributes))
    return path
