"""What tells the kinds of files that smtdist writes from one another, and where each can be taken."""

from __future__ import annotations

from typing import Any, Final

SCHEMAS: Final = {
    "words": "smtdist_words_schema",
    "points": "smtdist_points_schema",
    "kernel": "kernel_schema",
    "concepts": "smtdist_concepts_schema",
    "s3c": "s3c_schema",
    "sparse": "sparse_schema",
    "encoder": "encoder_schema",
    "video": "video_schema",
}
"""Attributes that only files of one kind have."""

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
    """Return which kind an open HDF5 file is: one of `SCHEMAS`, "representation", "images" or "smt"."""
    for kind, attribute in SCHEMAS.items():
        if attribute in file.attrs:
            return kind
    if "z" in file and "feature_shape" in file.attrs:
        return "representation"
    return "smt" if "smtdist_schema" in file.attrs else "images"


def other_than_smt(file: Any) -> str | None:
    """Return why an open HDF5 file is no model of images, for the middle of a sentence; None for one that may be."""
    kind = kind_in(file)
    if kind == "images":
        return "is an HDF5 file but not an smtdist model"
    return f"holds {_OTHERS[kind]}" if kind in _OTHERS else None
