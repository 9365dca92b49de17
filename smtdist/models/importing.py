"""Images from other formats into an HDF5 file: what can be asked, declared once, and the function of Python."""

from __future__ import annotations

import os
import warnings
from typing import Any, ClassVar, Final

from smtdist.data.importers import run
from smtdist.data.importers.images import KINDS, Places, looked_at
from smtdist.errors import counted
from smtdist.settings import (
    FLAG,
    NULL,
    TEXT,
    Settings,
    documented,
    one_of,
    setting,
    whole,
)

MOST_SIDE: Final = 16_384
"""Pixels of a side that images are scaled to, at most."""


class ImportSettings(Settings):
    """What is imported of a source of images, and what becomes of it."""

    OF: ClassVar[str] = "an import"

    group: str | None = setting(
        TEXT | NULL,
        "group to write, such as train or test. None: train; if the source has folders such as train and test, a group for "
        "each.",
        default=None,
    )
    shard_samples: int | None = setting(
        whole(1) | NULL,
        "write files of so many images each, and a manifest of them: data.json writes data-00000.h5 and so on.",
        default=None,
    )
    append: bool = setting(FLAG, "add the group to a file that exists.", default=False)
    layout: str = setting(
        one_of("auto", "plain", "encoded"),
        "plain: store pixels; encoded: store the bytes of the files (JPEG, PNG, WebP ...) as they are; auto: encoded unless "
        "resized.",
        default="auto",
    )
    resize: int | None = setting(
        whole(1, MOST_SIDE) | NULL,
        "scale the shorter side to so many pixels, then cut out the middle square.",
        default=None,
    )
    crop: int | None = setting(
        whole(1, MOST_SIDE) | NULL, "side of the middle square, in pixels. None: as resize.", default=None
    )
    kind: str | None = setting(
        one_of(*KINDS) | NULL,
        "kind of the source: folder, npz, idx, cifar, webdataset or parquet (video on the command line). None: found from its "
        "contents.",
        default=None,
    )
    labels_from: str = setting(
        one_of("folders", "none"),
        "folders: take the labels of the source; none: import no labels.",
        default="folders",
    )
    labels: str | None = setting(TEXT | NULL, "file with the labels, for .npy, .npz and IDX.", default=None)
    array: str | None = setting(
        TEXT | NULL, "name of the images in an .npz file. None: the usual names.", default=None
    )
    label_array: str | None = setting(TEXT | NULL, "name of the labels in an .npz file.", default=None)
    image_column: str | None = setting(
        TEXT | NULL,
        "column of the images in a Parquet file. None: the only column of bytes.",
        default=None,
    )
    label_column: str | None = setting(TEXT | NULL, "column of the labels in a Parquet file.", default=None)
    verify: bool = setting(
        FLAG, "decode every image once to check it, or only read its header.", default=True
    )
    on_error: str = setting(
        one_of("raise", "skip"),
        "if an image cannot be read: raise ends the import, skip leaves it out and lists it.",
        default="raise",
    )


def import_images(
    source: Places,
    out: str | os.PathLike[str],
    *,
    n_workers: int = 0,
    overwrite: bool = False,
    **settings: Any,
) -> dict[str, run.ImportResult]:
    """Import images from a folder, arrays or archives into an HDF5 file; repeat the call to continue a stopped import.

    source : a folder of images, or files: .npz, .npy, IDX, CIFAR batches, tar shards, Parquet.
    out : file to write, or with `shard_samples` a manifest (.json).
    n_workers : processes that decode; 0: this one. overwrite : replace the file if it exists.
    settings : as in `ImportSettings`.

    Returns what was written, by group; warns of what a source holds that is not imported. Memory: n_workers + 2 batches of
    4 MiB or one image. Raises DataError for what cannot be imported.
    """
    texts = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in settings.items()
    }
    found = looked_at(source, out, ImportSettings(**texts), n_workers=n_workers, overwrite=overwrite)
    results = found.run()
    for name, result in results.items():
        if result.left_out:
            what, first = found.listings[name].left_out_is, "; ".join(result.first_left_out)
            warnings.warn(f"Left out {counted(result.left_out, what)}, the first: {first}.", stacklevel=2)
    return results


import_images.__doc__ = documented(import_images.__doc__, "Settings", ImportSettings.declared())
