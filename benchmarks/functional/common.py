"""What the benchmarks of the functional embedding share: clips at hand, a dictionary of their patches, codes of sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.data.video import PatchSequences, open_clips
from smtdist.data.video_import import VideoSettings, import_videos
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models.functional.fit import SparseCoder

Float64 = NDArray[np.float64]


def engine() -> Engine:
    """Return an engine in this process."""
    return Engine(SerialExecutor())


def small_clips(data: str, folder: Path, levels: int) -> str:
    """Return a file of the clips at half the size `levels` times, written beside the record once."""
    out = folder / f"clips-{levels}.h5"
    if not out.exists():
        import_videos([data], out, VideoSettings(levels=levels))
    return str(out)


def split(path: str, held_out: list[str], **settings: Any) -> tuple[PatchSequences, PatchSequences]:
    """Return the patch sequences of the clips to learn from, and of those held out."""
    clips = open_clips(path)
    apart = [clip.dataset.split("/")[0] in held_out for clip in clips]
    names = [
        [clip for clip, out in zip(clips, apart, strict=True) if out is which] for which in (False, True)
    ]
    train, test = (PatchSequences(tuple(part), **settings) for part in names)
    return train, test


def rows_of(source: Source) -> NDArray[np.float32]:
    """Return all sequences, (n, T, d)."""
    with source.opened() as reader:
        return np.asarray(reader.read(0, source.n_samples)[:, 0], np.float32)


def coded(coder: SparseCoder, sequences: NDArray[np.float32]) -> Float64:
    """Return codes of sequences, (n, T, K)."""
    count, length, width = sequences.shape
    return coder(sequences.reshape(-1, width).astype(np.float64)).reshape(count, length, -1)


def snr(signal: Float64, found: Float64, mean: Float64) -> float:
    """Return 10 log10 of the signal's energy about its mean over that of the error."""
    return float(10 * np.log10(((signal - mean) ** 2).sum() / ((signal - found) ** 2).sum()))
