"""Attributes that say what stored numbers mean, as NetCDF has them: scales, offsets, gaps, unsigned and true or false.

What (file, variable) gives is what xarray's DataArray of it gives, because xarray applies them, block by block. It is
imported only for data that have such attributes.
"""

from __future__ import annotations

import base64
import json
import struct
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.errors import DataError

Attributes = tuple[tuple[str, str, str], ...]
"""(name, type, values as JSON) of each: hashable, and the same after a manifest."""

FILLS: Final = ("_FillValue", "missing_value")
PACKED: Final = ("scale_factor", "add_offset")
OTHERS: Final = ("_Unsigned", "dtype")
WHITE: Final = "IMAGE_WHITE_IS_ZERO"
BOOL: Final = "bool"
"""What xarray's attribute `dtype` says of true and false."""


def attributes_of(stored: Any, label: str) -> Attributes:
    """Return the attributes of an open HDF5 dataset or Zarr array that change what its numbers are; () for none.

    The fill value of a Zarr array of format 2 is where xarray writes `_FillValue`. Zero, the default, counts only where
    the attribute says so, too: zeros are black pixels. NaN as a gap changes nothing, since NaN is one anyway.
    """
    names = (*FILLS, *PACKED, *OTHERS)
    found = {name: stored.attrs[name] for name in names if name in stored.attrs}
    if getattr(getattr(stored, "metadata", None), "zarr_format", 0) == 2 and stored.fill_value:
        found[FILLS[0]] = stored.fill_value
    kept = {name: _value(value, stored.dtype) for name, value in found.items()}
    kept = {name: value for name, value in kept.items() if value.size}
    for name, value in kept.items():
        kinds = "biufU" if name in OTHERS else "biuf"
        if value.dtype.kind not in kinds or (name in PACKED and not np.isfinite(value).all()):
            raise DataError(
                f"{label} has the attribute {name} = {value.tolist()!r}, which is no number; correct it."
            )
    if not any(name in kept for name in PACKED):
        gaps = {name for name in FILLS if name in kept and kept[name].dtype.kind == "f"}
        nan = {name for name in gaps if np.isnan(kept[name]).all()}
        kept = {name: value for name, value in kept.items() if name not in nan}
    if kept.get("dtype", "") != BOOL:
        kept.pop("dtype", None)
    return tuple(
        (name, "str" if value.dtype.kind == "U" else value.dtype.str, json.dumps(value.tolist()))
        for name, value in sorted(kept.items())
    )


def decoded(block: npt.NDArray[Any], attributes: Attributes, name: str) -> npt.NDArray[Any]:
    """Return what stored numbers mean, NaN for gaps; DataError where xarray cannot tell.

    >>> decoded(np.array([0, 5, 255], np.uint8), (("_FillValue", "|u1", "255"), ("scale_factor", "<f8", "0.5")), "a").tolist()
    [0.0, 2.5, nan]
    """
    if not attributes:
        return block
    import xarray as xr

    values = ((key, dtype, json.loads(text)) for key, dtype, text in attributes)
    given = {key: value if dtype == "str" else np.asarray(value, dtype)[()] for key, dtype, value in values}
    variable = xr.Variable([f"axis_{axis}" for axis in range(block.ndim)], block, given)
    try:
        # whoever reads the numbers refuses those that become infinite
        with np.errstate(over="ignore", invalid="ignore"):
            found = xr.decode_cf(xr.Dataset({"stored": variable}), decode_times=False)["stored"].values
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{name} has the attributes {said(attributes)}, which cannot be applied ({error}); correct them."
        ) from error
    return np.asarray(found)


def said(attributes: Attributes) -> str:
    """Return attributes in words.

    >>> said((("scale_factor", "<f8", "0.5"), ("_Unsigned", "str", '"true"')))
    'scale_factor = 0.5 and _Unsigned = true'
    """
    return " and ".join(f"{name} = {json.loads(text)}" for name, _, text in attributes)


def require_plain_numbers(stored: Any, name: str) -> None:
    """Refuse what has such attributes, where they are not applied."""
    attributes = attributes_of(stored, name)
    if attributes:
        raise DataError(
            f"{name} has the attributes {said(attributes)}, which are applied to images and labels alone; open it with xarray "
            f"and give the DataArray, or store the numbers as they are meant."
        )


def texts_of(value: Any) -> list[str]:
    """Return the texts of an attribute, one or several.

    >>> texts_of(np.array([b"a", b"b"])), texts_of("NA")
    (['a', 'b'], ['NA'])
    """
    return [
        one.decode(errors="backslashreplace") if isinstance(one, bytes) else str(one)
        for one in np.asarray(value).flat
    ]


def not_utf8(name: str, error: UnicodeDecodeError) -> str:
    """Return the sentence on a label that is in another encoding."""
    return (
        f"{name} has the label {error.object[:40]!r}, which is no UTF-8; if it is Latin-1, decode it with 'latin-1', and store "
        f"it as UTF-8."
    )


def inverted(stored: Any, name: str) -> str:
    """Return a sentence on an image of HDF5 whose zero is white, which is not applied; "" for another."""
    if not np.any(stored.attrs.get(WHITE, 0)):
        return ""
    return f"{name} has the attribute {WHITE}, which is not applied; store the images with 0 for black, if that matters."


def _value(value: Any, dtype: Any) -> npt.NDArray[Any]:
    """Return the value of an attribute; of several that are one number alone, that."""
    array = np.asarray(value)
    if array.dtype.kind in "SO":
        array = np.array(texts_of(array))
    array = array.reshape(()) if array.size == 1 else array.ravel()
    if array.dtype.kind == "U" and np.dtype(dtype).kind == "f" and not array.ndim:
        with suppress(ValueError, struct.error):  # as xarray writes floats into the JSON of Zarr's format 3
            array = np.asarray(struct.unpack("<d", base64.standard_b64decode(str(array)))[0])
    return array
