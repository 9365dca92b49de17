"""What tells the kinds of files that smtdist writes from one another, and where each can be taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

IS_KIND: Final[dict[str, Callable[[Any], bool]]] = {
    "words": lambda file: "smtdist_words_schema" in file.attrs,
    "points": lambda file: "smtdist_points_schema" in file.attrs,
    "kernel": lambda file: "kernel_schema" in file.attrs,
    "concepts": lambda file: "smtdist_concepts_schema" in file.attrs,
    "s3c": lambda file: "s3c_schema" in file.attrs,
    "sparse": lambda file: "sparse_schema" in file.attrs,
    "encoder": lambda file: "encoder_schema" in file.attrs,
    "video": lambda file: "video_schema" in file.attrs,
    "representation": lambda file: "z" in file and "feature_shape" in file.attrs,
    "images": lambda file: "smtdist_schema" not in file.attrs,
    "smt": lambda file: True,
}
"""By name, in the order they are tried: whether an open HDF5 file is one."""

CODERS: Final = ("s3c", "sparse", "encoder")
"""Kinds that hold a coder of patches, or a transform on one."""
OF_IMAGES: Final = ("smt", *CODERS)
"""Kinds that turn images into representations: transforms, and coders of patches."""

_OTHERS: Final = {
    "words": "a model of words, which smtdist words --model takes",
    "points": "a model of points, which smtdist points transform takes",
    "kernel": "a kernel model, which smtdist kernel transform and kernel evaluate take",
    "concepts": "concepts, which smtdist concepts --search takes",
    "s3c": "a spike-and-slab model, which smtdist transform and smtdist evaluate take",
    "sparse": "a model of sparse codes, which smtdist transform and smtdist evaluate take",
    "encoder": "a model of an encoder, which smtdist transform and smtdist evaluate take",
    "video": "a transform of video, which smtdist video judge takes",
    "representation": "representations, not a model",
}


def kind_in(file: Any) -> str:
    """Return which kind an open HDF5 file is: a name in `IS_KIND`."""
    return next(name for name, is_kind in IS_KIND.items() if is_kind(file))


def other_than_smt(file: Any) -> str | None:
    """Return why an open HDF5 file is no model of images, for the middle of a sentence; None for one that may be."""
    kind = kind_in(file)
    if kind == "images":
        return "is an HDF5 file but not an smtdist model"
    return f"holds {_OTHERS[kind]}" if kind in _OTHERS else None
