"""What tells the kinds of files that smtdist writes from one another, and where each can be taken."""

from __future__ import annotations

import os
from typing import Any, Final

from smtdist.data import guarded, hdf5

KINDS: Final = {
    "words": ("smtdist_words_schema", "a model of words, which smtdist words --model takes"),
    "points": ("smtdist_points_schema", "a model of points, which smtdist points transform takes"),
    "kernel": ("kernel_schema", "a kernel model, which smtdist kernel transform and kernel evaluate take"),
    "concepts": ("smtdist_concepts_schema", "concepts, which smtdist concepts --search takes"),
    "s3c": ("s3c_schema", "a spike-and-slab model, which smtdist transform and smtdist evaluate take"),
    "sparse": (
        "sparse_schema",
        "a model of sparse codes, which smtdist transform and smtdist evaluate take",
    ),
    "encoder": (
        "encoder_schema",
        "a model of an encoder, which smtdist transform and smtdist evaluate take",
    ),
    "joined": (
        "joined_schema",
        "models side by side, which smtdist transform, evaluate, update and merge take",
    ),
    "video": ("video_schema", "a transform of video, which smtdist video judge takes"),
    "predictions": ("predictions_schema", "predictions of a head, not a model"),
    "head": ("head_schema", "a classifier of representations, which smtdist head predict takes"),
    "representation": ("feature_shape", "representations, not a model"),
}
"""By name: an attribute that files of other kinds lack, and what such a file holds."""

CODERS: Final = ("s3c", "sparse", "encoder")
"""Kinds that hold a coder of patches, or a transform on one."""
OF_IMAGES: Final = ("smt", "joined", *CODERS)
"""Kinds that turn images into representations: transforms, and coders of patches."""


def kind_in(file: Any) -> str:
    """Return which kind an open HDF5 file is: one of `KINDS`, "images" or "smt"."""
    for kind, (attribute, _) in KINDS.items():
        if attribute in file.attrs and (kind != "representation" or "z" in file):
            return kind
    return "smt" if "smtdist_schema" in file.attrs else "images"


def kind_at(path: str | os.PathLike[str]) -> str:
    """Return which kind a file is, as `kind_in` does; nothing where it cannot be opened."""
    try:
        with guarded.unlocked(path) as file:
            return kind_in(file)
    except hdf5.DAMAGE:
        return ""


def other_than_smt(file: Any) -> str | None:
    """Return why an open HDF5 file is no model of images, for the middle of a sentence; None for one that may be."""
    kind = kind_in(file)
    if kind == "images":
        return "is an HDF5 file but not an smtdist model"
    return f"holds {KINDS[kind][1]}" if kind in KINDS else None
