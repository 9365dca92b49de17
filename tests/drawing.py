"""Small images and codes that hypothesis draws from."""

import numpy as np
from hypothesis import strategies as st


def small_images(seed, n, height, width, channels=1, dtype="uint8"):
    """Images (n, height, width, channels) of smooth shades and noise, with flat areas (constant patches)."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    images = np.zeros((n, height, width, channels))
    for image in images:
        slope = rng.normal(size=(2, channels)) * rng.choice([0.0, 8.0, 20.0])
        image += rng.uniform(40, 215, channels) + rows[..., None] * slope[0] + columns[..., None] * slope[1]
        image += rng.normal(size=image.shape) * rng.choice([0.0, 1.0, 30.0])
        top, left = rng.integers(0, height), rng.integers(0, width)
        if rng.random() < 0.5:
            image[top:, left:] = rng.integers(0, 256, channels)  # a flat corner
    grey_levels = np.clip(images, 0, 255)
    return np.rint(grey_levels).astype("uint8") if dtype == "uint8" else (grey_levels / 255).astype(dtype)


def unit_rows(rng, count, size):
    """Rows of length one in any direction."""
    rows = rng.standard_normal((count, size))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def unit_columns(rng, size, count):
    """Columns of length one in any direction, drawn row by row."""
    columns = rng.standard_normal((size, count))
    return columns / np.linalg.norm(columns, axis=0)


@st.composite
def coded_images(draw, kind=("gq", "vq"), leave_out=True, images=3, side=4):
    """Draw binary codes A (K, rows x columns) of a few images; a column of zeros is a position left out."""
    rows, columns, K = draw(st.integers(1, side)), draw(st.integers(1, side)), draw(st.integers(1, 6))
    n, rng = rows * columns, np.random.default_rng(draw(st.integers(0, 2**32)))
    feature, share = (
        draw(st.sampled_from(kind)),
        draw(st.sampled_from([0.0, 0.3, 0.9])) if leave_out else 0.0,
    )
    out = []
    for _ in range(draw(st.integers(1, images))):
        A = (rng.random((K, n)) < 0.4).astype(np.int64) * (feature == "gq")
        A[rng.integers(0, K, n), np.arange(n)] = 1
        A[:, rng.random(n) < share] = 0
        out.append(A)
    return out, rows, columns
