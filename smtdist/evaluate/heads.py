"""Heads of every kind, from their files."""

from __future__ import annotations

import os

from smtdist.errors import ModelError
from smtdist.evaluate import head_files
from smtdist.evaluate.kernel_head import KernelHead
from smtdist.evaluate.ridge_head import RidgeHead

KINDS: dict[str, type[RidgeHead] | type[KernelHead]] = {one.KIND: one for one in (RidgeHead, KernelHead)}


def load(path: str | os.PathLike[str]) -> RidgeHead | KernelHead:
    """Read a head, whatever its kind; ModelError for another file, or a damaged one."""
    with head_files.opened(path) as (file, about):
        if about.kind not in KINDS:
            raise ModelError(f"{path} holds a head of an unknown kind, {about.kind!r}; install a newer smtdist.")
        return KINDS[about.kind].of_file(file, about)
