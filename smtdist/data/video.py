"""Video clips in HDF5 as a source of patch sequences: the same place in consecutive frames, never across a cut.

Clips are brought into HDF5 from any file that PyAV reads, or from HDF5 clips. Single frames are cropped, down-sampled by a
pyramid, and whitened in the Fourier domain (SMT 2018, D).
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt
from scipy import fft

from smtdist.data.conventions import require_plain_numbers
from smtdist.data.hdf5 import damage_named, open_dataset, open_file, unreadable_named
from smtdist.data.importers.items import LeftOut
from smtdist.data.source import Reader, Source, read_boxes
from smtdist.data.writing import check_target, lenient, whole_file
from smtdist.errors import ConfigurationError, DataError, command, counted, masked
from smtdist.kernels import hashing

Frames = npt.NDArray[np.float32]

ENDINGS: Final = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v")
"""How names of video files end, of which the kind need not be said."""
LOW_PASS: Final = 0.75
"""r₀ as a share of the Nyquist frequency: the paper's 48 of 64 cycles a frame of 128 pixels."""


def are_videos(paths: Iterable[Path]) -> bool:
    """Tell whether files are video by their names.

    >>> are_videos([Path("a.MP4"), Path("b.mov")]), are_videos([Path("a.mp4"), Path("b.npz")])
    (True, False)
    """
    return all(path.suffix.lower() in ENDINGS for path in paths)


def centre_crop(
    frames: npt.NDArray[np.generic], side: int | None, multiple: int = 1
) -> npt.NDArray[np.generic]:
    """Return the central square of frames (T, H, W): of that side, or the largest whose side is a multiple of `multiple`.

    A view. Raises DataError where the frames are smaller.

    >>> centre_crop(np.arange(12).reshape(1, 3, 4), 2).tolist()
    [[[1, 2], [5, 6]]]
    """
    height, width = frames.shape[1:3]
    wanted = min(height, width) // multiple * multiple if side is None else side
    if not 0 < wanted <= min(height, width):
        raise DataError(
            f"A square of {wanted} pixels does not fit into frames of {height} x {width}; ask for a smaller crop."
        )
    top, left = (height - wanted) // 2, (width - wanted) // 2
    return frames[:, top : top + wanted, left : left + wanted]


def down_sampled(frames: npt.NDArray[np.generic], levels: int) -> Frames:
    """Return frames (T, n, n) at half the size `levels` times: the low-pass residual of a steerable pyramid, in grey levels.

    The pyramid is pyrtools' in the Fourier domain (Simoncelli and Freeman 1995), as in the paper; its
    residual is on the scale of the pixels. n must be a multiple of 2^levels.
    """
    result = np.asarray(frames, np.float32)
    if levels == 0:
        return result
    side = result.shape[1]
    if result.shape[1] != result.shape[2] or side % 2**levels or side < 2 ** (levels + 2):
        raise ConfigurationError(
            f"Frames of {result.shape[1]} x {result.shape[2]} cannot be halved {levels} times by a pyramid; "
            f"crop them to a square whose side is a multiple of {2**levels}, of at least {2 ** (levels + 2)} pixels."
        )
    try:
        from pyrtools.pyramids import SteerablePyramidFreq
    except ImportError as error:
        raise ConfigurationError(
            "Down-sampling by a pyramid needs pyrtools; install smtdist[video], or leave the size as it is."
        ) from error
    small = np.empty((len(result), side >> levels, side >> levels), np.float32)
    for frame, to in zip(result, small, strict=True):
        bands = SteerablePyramidFreq(frame.astype(np.float64), height=levels, order=0)
        to[...] = bands.pyr_coeffs["residual_lowpass"].real / 4**levels
    return small


def whitening_mask(height: int, width: int, low_pass: float = LOW_PASS) -> npt.NDArray[np.float64]:
    """Return w(u, v) = r exp(-(r / r₀)⁴) over the real Fourier transform of a frame, r in units of the Nyquist frequency.

    >>> whitening_mask(4, 4)[0].round(4).tolist()
    [0.0, 0.4104, 0.0424]
    """
    down, across = 2 * fft.fftfreq(height)[:, None], 2 * fft.rfftfreq(width)
    r = np.hypot(down, across)
    result: npt.NDArray[np.float64] = r * np.exp(-((r / low_pass) ** 4))
    return result


def fourier_whitened(frames: npt.NDArray[np.generic], low_pass: float = LOW_PASS) -> Frames:
    """Return frames (T, H, W) whose amplitudes are multiplied with `whitening_mask`; natural ones fall as 1 / frequency.

    Memory: three arrays of a frame. The mean of a frame becomes 0.
    """
    height, width = frames.shape[1:]
    mask = whitening_mask(height, width, low_pass)
    result = np.empty(frames.shape, np.float32)
    for frame, to in zip(frames, result, strict=True):
        to[...] = fft.irfft2(fft.rfft2(frame.astype(np.float64)) * mask, s=(height, width))
    return result


def cuts_of(frames: npt.NDArray[np.generic], factor: float = 8.0, floor: float = 12.0) -> list[int]:
    """Return the first frames after hard cuts: where the mean change of a pixel is large by itself and beside its neighbours.

    A change counts that is above `floor` grey levels and above `factor` times the median of the eight
    changes around it.
    """
    if len(frames) < 3:
        return []
    pairs = ((before.astype(np.float32), after.astype(np.float32)) for before, after in pairwise(frames))
    change = np.array([float(np.abs(after - before).mean()) for before, after in pairs])
    found = []
    for at, value in enumerate(change):
        around = np.delete(change[max(0, at - 4) : at + 5], min(at, 4))
        if value > floor and value > factor * float(np.median(around)):
            found.append(at + 1)
    return found


WHITEN: Final = ("none", "fourier")
VIEWS: Final = (1, 2, 4, 8)
PLACES_VIEW: Final = 23
"""Keeps the hashes of places apart from those of other draws."""


@dataclass(frozen=True)
class Clip:
    """A clip by name: frames (time, row, column) in a file, and the first frames of its shots."""

    path: str
    dataset: str
    frames: int
    height: int
    width: int
    fps: float
    cuts: tuple[int, ...]

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{masked(self.path)}:{self.dataset}"

    def shots(self) -> list[tuple[int, int]]:
        """Return the ranges of frames between cuts."""
        edges = [0, *(cut for cut in sorted(set(self.cuts)) if 0 < cut < self.frames), self.frames]
        return list(pairwise(edges))


def open_clips(path: str, names: Sequence[str] | None = None) -> tuple[Clip, ...]:
    """Return the clips of an HDF5 file: groups with `frames` (time, row, column), attributes `fps` and `cuts` (first frames of
    shots) where there are any; all of them, by name, or those asked for.

    Raises DataError for a file without clips, and for names that are none.
    """
    with open_file(path) as file, damage_named(path):
        found = [name for name in file if isinstance(file[name], h5py.Group) and "frames" in file[name]]
        if not found:
            raise DataError(
                f"{path} holds no clips; a clip is a group with the dataset frames (time, row, column). "
                f"Write them with {command('import', 'kind', 'video')}."
            )
        missing = [name for name in names or () if name not in found]
        if missing:
            raise DataError(f"{path} has no clip {missing[0]!r}; its clips are {', '.join(found)}.")
        clips = []
        for name in names or found:
            frames, about = file[name]["frames"], file[name].attrs
            if frames.ndim != 3 or 0 in frames.shape or frames.dtype.kind not in "uf":
                raise DataError(
                    f"{path}:{name}/frames is {frames.dtype.name} of the shape {frames.shape}; "
                    f"frames are uint8 or floats, (time, row, column)."
                )
            require_plain_numbers(frames, f"{path}:{name}/frames")
            cuts = tuple(int(cut) for cut in np.atleast_1d(about.get("cuts", ())))
            length, height, width = frames.shape
            fps = float(about.get("fps", math.nan))
            clips.append(Clip(path, f"{name}/frames", length, height, width, fps, cuts))
        return tuple(clips)


@contextmanager
def clips_of(X: Any) -> Iterator[tuple[Clip, ...]]:
    """Yield the clips of files, or of arrays, which lie in a temporary file meanwhile.

    X : a path or several, a pair (path, names of clips), or an array of frames (time, row, column) or several.

    >>> with clips_of(np.zeros((9, 4, 4), np.uint8)) as clips:
    ...     clips[0].frames
    9
    """
    if isinstance(X, tuple) and len(X) == 2 and isinstance(X[0], str | os.PathLike):
        path, names = X
        chosen = [names] if isinstance(names, str) else names
        yield open_clips(os.path.abspath(path), chosen)
        return
    given = [X] if isinstance(X, str | os.PathLike) or getattr(X, "ndim", 0) == 3 else list(X)
    if all(isinstance(one, str | os.PathLike) for one in given):
        yield tuple(clip for one in given for clip in open_clips(os.path.abspath(one)))
        return
    with tempfile.TemporaryDirectory(prefix="smtdist-clips-") as folder:
        path = os.path.join(folder, "clips.h5")
        with h5py.File(path, "w") as file:
            for number, one in enumerate(given):
                frames = np.asarray(one)
                if 0 in frames.shape:
                    raise DataError(
                        f"Clip {number} is empty, of the shape {frames.shape}; give frames (time, row, column)."
                    )
                file[f"clip{number}/frames"] = frames
        yield open_clips(path, [f"clip{number}" for number in range(len(given))])


@dataclass(frozen=True, eq=False)
class PatchSequences(Source):
    """Patches at one place of `length` consecutive frames: samples of shape (length, patch²), float32.

    Windows of `length` frames follow one another within each shot; each has `places` places, drawn by
    hashes of the seed, the name of the clip in its file and the first frame: a clip has the same places
    beside whichever others. With `overlap` a window begins with the last so many frames of the one before, the
    last window of a shot ends with it, and a shot that is shorter has its first frame repeated before it; a
    column more, the last, then says what of this is new (`smtdist.statistics.sites.Sequences`).
    Pixels are in [0, 1] (uint8 divided by 255); with whiten="fourier" frames are
    whitened whole, before patches are cut (`smtdist.data.video.fourier_whitened`). A window is read
    once for all its places.
    views : what is seen of a window, one after the other, each at places of its own: 1, the frames as they
    are; 2, mirrored left to right too; 4, upside down too; 8, rows and columns exchanged too.
    """

    clips: tuple[Clip, ...]
    patch: int
    length: int
    places: int
    whiten: str = "none"
    low_pass: float = LOW_PASS
    seed: int = 0
    views: int = 1
    overlap: int = 0
    windows: tuple[tuple[int, int], ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    dtype = np.dtype(np.float32)
    file_bytes = None

    def __post_init__(self) -> None:
        if self.whiten not in WHITEN:
            raise ConfigurationError(f"whiten is {self.whiten!r}; choose {' or '.join(WHITEN)}.")
        if min(self.patch, self.length, self.places) < 1 or not self.low_pass > 0:
            raise ConfigurationError(
                f"patch_size is {self.patch}, length {self.length}, places {self.places}, low_pass {self.low_pass}; "
                f"all must lie above 0."
            )
        if self.views not in VIEWS:
            raise ConfigurationError(
                f"views is {self.views}; choose {', '.join(map(str, VIEWS[:-1]))} or {VIEWS[-1]}."
            )
        for clip in self.clips:
            if self.patch > min(clip.height, clip.width):
                raise ConfigurationError(
                    f"patch_size is {self.patch}, but {clip.name} has frames of {clip.height} x {clip.width}; use a smaller one."
                )
        if not 0 <= self.overlap < self.length:
            raise ConfigurationError(
                f"overlap is {self.overlap} for sequences of {self.length} frames; it must be at least 0 and less than that."
            )
        found = [
            (number, start, frames, new)
            for number, clip in enumerate(self.clips)
            for first, last in clip.shots()
            for start, frames, new in _windows(first, last, self.length, self.overlap)
        ]
        if not found:
            least = self.overlap + 1 if self.overlap else self.length
            raise DataError(
                f"No shot of the clips has {least} frames; ask for shorter sequences, or give longer clips."
            )
        object.__setattr__(self, "windows", tuple(one[:2] for one in found))
        object.__setattr__(self, "marks", tuple(one[2:] for one in found))

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]  # a field of the base class, computed here
        """(windows x views x places, length, patch²), and a column more where windows overlap."""
        width = self.patch**2 + (self.overlap > 0)
        return len(self.windows) * self.chunk_samples, self.length, width

    @property
    def chunk_samples(self) -> int:  # type: ignore[override]
        """The places of a window, in all its views."""
        return self.views * self.places

    @property
    def name(self) -> str:  # type: ignore[override]
        """What messages call the clips."""
        if len(self.clips) == 1:
            return self.clips[0].name
        more = len({clip.path for clip in self.clips}) - 1
        return masked(self.clips[0].path) + (f" and {counted(more, 'more file')}" if more else "")

    @property
    def reader_bytes(self) -> int:
        """A window of frames as stored, in float32 and whitened, and the transform of a frame."""
        return max(clip.height * clip.width for clip in self.clips) * (16 * self.length + 64)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the frames of all windows, each once, as bytes of grey levels."""
        return sum(
            self.clips[clip].height * self.clips[clip].width * new
            for (clip, _), (_, new) in zip(self.windows, self.marks, strict=True)
        )

    def describe(self) -> dict[str, Any]:
        """Return kind, clips and how they are cut up, as plain JSON."""
        return {
            "kind": "patch sequences",
            "clips": [[clip.name, clip.frames, list(clip.cuts)] for clip in self.clips],
            **{
                name: getattr(self, name)
                for name in ("patch", "length", "places", "whiten", "low_pass", "seed", "views", "overlap")
            },
        }

    def corners(self, window: int) -> npt.NDArray[np.int64]:
        """Return the upper left corners of the patches of a window in each view, (views x places, 2), row and column."""
        number, first = self.windows[window]
        clip = self.clips[number]
        named = int.from_bytes(hashlib.blake2b(clip.dataset.encode(), digest_size=4).digest(), "little")
        sides = np.array([clip.height - self.patch + 1, clip.width - self.patch + 1], np.uint64)
        hashes = hashing.position_hashes(
            self.seed, (named << 32) + first, 1, 2 * self.chunk_samples, PLACES_VIEW
        )
        # hashes are even over 2^64: their remainders are, but for one part in 10^16
        return (hashes.reshape(-1, 2) % sides).astype(np.int64)

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Yield a reader that keeps the window it read last."""
        yield _SequenceReader(self)


class _SequenceReader(Reader):
    source: PatchSequences

    def __init__(self, source: PatchSequences) -> None:
        super().__init__(source)
        self._window, self._frames = -1, np.zeros((0, 0, 0), np.float32)

    def _fill(self, start: int, stop: int, out: npt.NDArray[Any]) -> int:
        source, taken, per = self.source, 0, self.source.chunk_samples
        windows = np.lib.stride_tricks.sliding_window_view
        for window in range(start // per, -(-stop // per)):
            taken += self._load(window)
            first = window * per
            low, high = max(start, first), min(stop, first + per)
            corners = source.corners(window)[low - first : high - first]
            at = windows(self._frames, (source.patch, source.patch), axis=(1, 2))
            cut = at[:, corners[:, 0], corners[:, 1]].transpose(1, 0, 2, 3)  # (m, length, p, p)
            views = np.arange(low - first, high - first) // source.places
            if source.overlap:
                # 2 for a new frame, 1 for one that an earlier window has, too, 0 before the shot begins
                frames, new = source.marks[window]
                before = source.length - np.arange(source.length)
                out[low - start : high - start, :, -1] = 1 * (before <= frames) + (before <= new)
            for view in np.unique(views):
                rows = np.flatnonzero(views == view)
                here = slice(low - start + int(rows[0]), low - start + int(rows[-1]) + 1)
                out[here, :, : source.patch**2] = seen(cut[rows[0] : rows[-1] + 1], int(view)).reshape(
                    len(rows), source.length, -1
                )
        return taken

    def _load(self, window: int) -> int:
        """Read the frames of a window that the one before has not, whitened where asked for; return the bytes this took."""
        if window == self._window:
            return 0
        source = self.source
        number, start = source.windows[window]
        clip, (count, new) = source.clips[number], source.marks[window]
        follows = window == self._window + 1 and new < count
        first = start + count - new if follows else start
        with open_dataset(clip.path, clip.dataset) as stored:
            if stored.shape != (clip.frames, clip.height, clip.width):
                raise DataError(
                    f"{clip.name} is now of the shape {stored.shape}, but was {(clip.frames, clip.height, clip.width)} "
                    f"when first opened; start again."
                )
            with unreadable_named(f"{clip.name}, frames {first} to {start + count - 1}", DataError):
                raw = read_boxes(stored, first, start + count)
        frames = raw.astype(np.float32)
        if raw.dtype == np.uint8:
            frames /= np.float32(255)
        if source.whiten == "fourier":
            frames = fourier_whitened(frames, source.low_pass)
        if follows:
            frames = np.concatenate([self._frames[new - count :], frames])
        if count < source.length:
            frames = np.concatenate([np.repeat(frames[:1], source.length - count, axis=0), frames])
        self._window, self._frames = window, frames
        return int(raw.nbytes)


def _windows(first: int, last: int, length: int, overlap: int) -> Iterator[tuple[int, int, int]]:
    """Yield first frame, frames, and how many of these are new, of each window of a shot.

    >>> list(_windows(0, 9, 4, 0)), list(_windows(0, 9, 4, 2)), list(_windows(0, 3, 4, 2))
    ([(0, 4, 4), (4, 4, 4)], [(0, 4, 4), (2, 4, 2), (4, 4, 2), (5, 4, 1)], [(0, 3, 3)])
    """
    if not overlap:
        yield from ((start, length, length) for start in range(first, last - length + 1, length))
    elif last - first > overlap:
        done = first
        while done < last:
            stop = min(max(done - overlap, first) + length, last)
            start = max(first, stop - length)
            yield start, stop - start, stop - done
            done = stop


def seen(patches: npt.NDArray[Any], view: int) -> npt.NDArray[Any]:
    """Return patches (..., p, p) as one of the eight symmetries of a square sees them.

    Bit 0 mirrors left to right, bit 1 up to down, bit 2 exchanges rows and columns, in this order.

    >>> seen(np.array([[1, 2], [3, 4]]), 5).tolist()
    [[2, 4], [1, 3]]
    """
    if view & 1:
        patches = patches[..., ::-1]
    if view & 2:
        patches = patches[..., ::-1, :]
    return np.swapaxes(patches, -1, -2) if view & 4 else patches


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
