"""Clips brought into HDF5: from any file that PyAV reads, or from HDF5 clips, cropped and down-sampled (SMT 2018, D)."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from smtdist.data.hdf5 import open_dataset, open_file
from smtdist.data.importers.items import LeftOut
from smtdist.data.video import Clip, centre_crop, cuts_of, down_sampled, open_clips
from smtdist.data.writing import check_target, lenient, whole_file
from smtdist.errors import ConfigurationError, DataError, counted

BATCH: Final = 64
HDF5_SUFFIXES: Final = (".h5", ".hdf5", ".nc")


@dataclass(frozen=True)
class VideoSettings:
    """How frames are brought in: the side of the central square, halvings, the most frames of a clip (0: all)."""

    crop: int | None = None
    levels: int = 0
    limit: int = 0

    def __post_init__(self) -> None:
        if self.levels < 0 or self.limit < 0 or (self.crop is not None and self.crop % 2**self.levels):
            raise ConfigurationError(
                f"crop is {self.crop}, levels {self.levels}, limit {self.limit}; levels and limit are at least 0, and crop is "
                f"a multiple of {2 ** max(self.levels, 0)}."
            )

    def __call__(self, frames: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
        """Return frames (T, H, W) cropped and down-sampled, uint8."""
        if self.crop is not None or self.levels:
            frames = centre_crop(frames, self.crop, 2**self.levels)
        small = down_sampled(frames, self.levels)
        return np.clip(np.rint(small), 0, 255).astype(np.uint8)


def _warned(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=3)


def import_videos(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    crop: int | None = None,
    levels: int = 0,
    limit: int = 0,
    overwrite: bool = False,
    note: Callable[[str], None] = _warned,
) -> list[dict[str, Any]]:
    """Write a file with a group for each clip: `frames` (time, row, column) uint8, attributes `fps`, `cuts` and `source`.

    files : video files, or HDF5 files of clips. crop, levels, limit : as in `VideoSettings`. note : is told what the files
        hold beside the clips that could be frames and is left out.

    HDF5 files of clips keep the cuts that they list. In other files, `cuts_of` looks for cuts. Memory: 64
    frames, and the small frames of one clip. The file is written completely or not at all. Raises DataError
    for a file that cannot be decoded.
    """
    settings, out = VideoSettings(crop, levels, limit), Path(out)
    given = [files] if isinstance(files, str | os.PathLike) else files
    paths = [str(path) for path in given]
    check_target(out, overwrite, inputs=paths)
    written: list[dict[str, Any]] = []
    left = LeftOut()
    with whole_file(out, overwrite) as temporary, lenient(temporary) as raw, h5py.File(raw, "w") as file:
        for path in paths:
            for name, fps, cuts, blocks in _clips_of(path, left):
                if name in file:
                    raise DataError(f"Two clips are called {name}; rename one of the files.")
                frames = _collected(blocks, settings, path)
                found = [cut for cut in cuts if cut < len(frames)] if cuts is not None else cuts_of(frames)
                group = file.create_group(name)
                chunk = (min(8, len(frames)), *frames.shape[1:])
                group.create_dataset(
                    "frames", data=frames, chunks=chunk, compression="gzip", compression_opts=1
                )
                group.attrs["source"] = Path(path).name
                if not math.isnan(fps):
                    group.attrs["fps"] = fps
                group.attrs["cuts"] = np.array(found, np.int64)
                written.append(
                    {
                        "clip": name,
                        "frames": list(frames.shape),
                        "fps": None if math.isnan(fps) else fps,
                        "cuts": found,
                    }
                )
    if left.count:
        note(
            f"Left out {counted(left.count, 'part of the files')} with no clip, the first: {'; '.join(left.first)}."
        )
    return written


def _collected(
    blocks: Iterator[npt.NDArray[np.generic]], settings: VideoSettings, path: str
) -> npt.NDArray[np.uint8]:
    parts, count = [], 0
    for block in blocks:
        kept = block[: settings.limit - count] if settings.limit else block
        parts.append(settings(kept))
        count += len(kept)
        if count == settings.limit:
            break
    if not count:
        raise DataError(f"{path} holds no frames of video.")
    return np.concatenate(parts)


Block = Iterator[npt.NDArray[np.generic]]


def _clips_of(path: str, left: LeftOut) -> Iterator[tuple[str, float, tuple[int, ...] | None, Block]]:
    if Path(path).suffix.lower() in HDF5_SUFFIXES:
        clips = open_clips(path)
        taken = {clip.dataset for clip in clips}

        def note(name: str, item: Any) -> None:
            if len(getattr(item, "shape", None) or ()) >= 3 and name not in taken:
                left.add(f"{path}:{name}")

        with open_file(path) as file:
            file.visititems(note)
        for clip in clips:
            yield clip.dataset.split("/")[0], clip.fps, clip.cuts, _stored(clip)
        return
    fps, blocks, others = _decoded(path)
    for number in range(others):
        left.add(f"{path}, video stream {number + 1}")
    yield Path(path).stem, fps, None, blocks


def _stored(clip: Clip) -> Block:
    with open_dataset(clip.path, clip.dataset) as frames:
        for start in range(0, clip.frames, BATCH):
            yield frames[start : start + BATCH]


def _decoded(path: str) -> tuple[float, Block, int]:
    """Return the frame rate and the luminance of a video file's frames, in blocks, and how many other streams it has."""
    try:
        import av
    except ImportError as error:
        raise ConfigurationError(
            f"{path} is a video file, which needs PyAV to read; install smtdist[video]."
        ) from error
    if not Path(path).is_file():
        raise DataError(f"The file {path} does not exist; check the path.")
    try:
        with av.open(path) as container:
            if not container.streams.video:
                raise DataError(f"{path} holds no video stream.")
            rate, others = container.streams.video[0].average_rate, len(container.streams.video) - 1
    except (av.FFmpegError, OSError) as error:
        raise DataError(f"{path} cannot be read as a video ({error}); check the file.") from error
    return float(rate) if rate is not None else float("nan"), _blocks(path), others


def _blocks(path: str) -> Block:
    import av

    block: list[npt.NDArray[np.uint8]] = []
    try:
        with av.open(path) as container:
            for frame in container.decode(video=0):
                block.append(np.asarray(frame.to_ndarray(format="gray"), np.uint8))
                if len(block) == BATCH:
                    yield np.stack(block)
                    block = []
    except (av.FFmpegError, ValueError) as error:
        raise DataError(
            f"{path}: a frame cannot be decoded ({error}); restore the file from a good copy."
        ) from error
    if block:
        yield np.stack(block)
