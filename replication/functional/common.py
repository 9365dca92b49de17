"""What the benchmarks of the functional embedding share: clips at hand, split into those to learn from and those held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.data.video import Clip, import_videos, open_clips
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine


def engine() -> Engine:
    """Return an engine in this process."""
    return Engine(SerialExecutor())


def small_clips(data: str, folder: Path, levels: int) -> str:
    """Return a file of the clips at half the size `levels` times, written once to the folder."""
    out = folder / f"clips-{levels}.h5"
    if not out.exists():
        import_videos([data], out, levels=levels)
    return str(out)


def split(
    path: str, held_out: list[str], leave_out: list[str]
) -> tuple[tuple[Clip, ...], tuple[Clip, ...]]:
    """Return the clips to learn from, and those held out; others are left out of both."""
    clips = [clip for clip in open_clips(path) if clip.dataset.split("/")[0] not in leave_out]
    apart = {clip: clip.dataset.split("/")[0] in held_out for clip in clips}
    train, test = (tuple(clip for clip in clips if apart[clip] is which) for which in (False, True))
    return train, test


def rows_of(source: Source) -> NDArray[np.float32]:
    """Return all sequences, (n, T, d)."""
    with source.opened() as reader:
        return np.asarray(reader.read(0, source.n_samples), np.float32)
