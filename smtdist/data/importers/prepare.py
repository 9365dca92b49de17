"""Batches of items made ready to be written: checked, decoded, scaled, put side by side.

An image of 64 x 64 pixels takes some 50 microseconds to read and decode, most of it in calls that are too
short for threads: they spend on the interpreter's lock what they win. A helper is a process of its own that
answers on its standard output, batch by batch. It shares no group with the terminal, so an interrupt
reaches only the driver; it ends when its standard input does, however the driver has ended.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from smtdist.data import decode as decoding
from smtdist.data.importers.items import USUAL, Batch, ImportOptions, Labels
from smtdist.errors import DataError, option, rendered


class ColourFound(Exception):
    """A colour image among images that were all grey so far: the plain layout must begin anew with three channels."""


class Size(NamedTuple):
    """Rows, columns and channels of an image."""

    height: int
    width: int
    channels: int


@dataclass(frozen=True)
class Recipe:
    """What is done with each image.

    Attributes
    ----------
    plain : pixels are written, (H, W, C) each as `shape` says; else encoded bytes.
    options : how images are scaled, and whether those kept as they are get decoded, and unreadable ones are left out.
    """

    plain: bool
    shape: tuple[int, ...] = ()
    dtype: str = "uint8"
    options: ImportOptions = USUAL

    def keeps_pixels(self, batch: Batch) -> bool:
        """Whether the batch is written as it comes."""
        return isinstance(batch.data, np.ndarray) and self.plain and not self.options.scales


@dataclass
class Prepared:
    """A batch ready to be written: `items` that were looked at, of which some may be left out.

    `data` is pixels (n, H, W[, C]) or the encoded images joined; `lengths` are their bytes.
    """

    items: int
    data: Any = b""
    lengths: list[int] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    labels: Labels | None = None
    skipped: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        """Samples to be written."""
        return len(self.sizes) or len(self.data)  # encoded without sizes: no sample, no bytes


def prepare(batch: Batch, recipe: Recipe) -> Prepared:
    """Make one batch ready; raise DataError that names the first image which cannot be."""
    if recipe.keeps_pixels(batch):
        return Prepared(len(batch), batch.data, labels=batch.labels)
    options, result = recipe.options, Prepared(len(batch))
    kept, parts = list[int](), list[Any]()
    pixels = np.empty((len(batch), *recipe.shape), recipe.dtype) if recipe.plain else None
    for index in range(len(batch)):
        name = ""  # what cannot be read says its name itself
        try:
            data = batch.read(index)
            name = f"{batch.name(index)}: "
            if pixels is not None:
                image = image_of(data, recipe, channels=recipe.shape[2])
                if image.shape != recipe.shape:
                    height, width = image.shape[:2]
                    raise DataError(
                        f"the image is {width} x {height}, but the first one is {recipe.shape[1]} x {recipe.shape[0]}, and "
                        f"the plain layout holds one size; pass {option('resize', 'N')}, or {option('layout', 'encoded')}."
                    )
                pixels[len(kept)] = image
            else:
                if isinstance(data, np.ndarray) or options.scales:
                    image = image_of(data, recipe)
                    size, data = Size(*image.shape), decoding.encode_png(image)
                else:
                    header = decoding.verify(data) if options.verify else decoding.read_header(data)
                    size = Size(*header[:3])
                result.sizes.append(size)
                parts.append(data)
        except DataError as error:
            if not options.skip:
                raise DataError(f"{name}{error.sentence}") from error
            result.skipped.append(rendered(f"{name}{error.sentence}"))
            continue
        kept.append(index)
    result.lengths = [len(part) for part in parts]
    result.data = b"".join(parts) if pixels is None else pixels[: len(kept)]
    result.labels = None if batch.labels is None else batch.labels[kept]
    return result


def image_of(data: Any, recipe: Recipe, channels: int | None = None) -> npt.NDArray[np.uint8]:
    """Return the pixels (H, W, C) of an item, scaled; grey ones become colour where `channels` is 3."""
    if isinstance(data, np.ndarray):
        image = data if data.ndim == 3 else data[:, :, None]
    elif channels == 3 and not recipe.options.scales:  # nothing of the header can stand against it
        return decoding.decode(data, channels)
    else:
        header = decoding.read_header(data)
        if channels == 1 and header.channels == 3:
            raise ColourFound
        decoding.resized_shape(
            header.height, header.width, recipe.options.resize, recipe.options.crop
        )  # refused before it is decoded
        image = decoding.decode(data, channels)
    return decoding.resized(image, recipe.options.resize, recipe.options.crop)


FIRST_HERE: Final = 4
"""Batches that are prepared before helpers are started: by then most small imports are done."""

_GONE: Final = (OSError, EOFError, pickle.UnpicklingError)


def in_order(batches: Iterable[Batch], recipe: Recipe, workers: int) -> Generator[Prepared, None, None]:
    """Yield all batches in their order, prepared by `workers` processes; 0, or nothing to decode: by this one.

    A batch whose helper dies is prepared here. Memory: workers + 2 batches, and some 50 MiB a helper.
    """
    source = iter(batches)
    yield from (
        prepare(batch, recipe) for batch in itertools.islice(source, FIRST_HERE if workers else None)
    )
    following = next(source, None)
    if following is None:
        return
    source = itertools.chain([following], source)
    if recipe.keeps_pixels(following):
        yield from (prepare(batch, recipe) for batch in source)
        return
    waiting: deque[Future[Prepared]] = deque()
    helpers = Helpers(recipe, workers)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="import")  # each waits for one helper
    try:
        for batch in source:
            waiting.append(pool.submit(helpers.prepare, batch))
            del batch
            if len(waiting) > workers + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        helpers.close()
        pool.shutdown(wait=True, cancel_futures=True)


class Helpers:
    """Some processes, each with one batch at a time."""

    def __init__(self, recipe: Recipe, workers: int) -> None:
        """Start the processes; where the system starts none, batches are prepared by the threads that ask."""
        self._recipe = recipe
        self._closing = threading.Event()
        self._free: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
        self.processes: list[subprocess.Popen[bytes]] = []
        # -P and this path: the modules of this process, not what lies in the current folder
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for _ in range(workers):
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env=environment,
                )
            except (OSError, ValueError):
                self._free.put(None)
            else:
                self._free.put(process)
                self.processes.append(process)

    def prepare(self, batch: Batch) -> Prepared:
        """Have a batch prepared; raise what `prepare` raises."""
        process = self._free.get()
        try:
            if process is None:
                return prepare(batch, self._recipe)
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump((batch, self._recipe), process.stdin, pickle.HIGHEST_PROTOCOL)
                process.stdin.flush()
                answer = pickle.load(process.stdout)
            except _GONE:
                if self._closing.is_set():
                    raise
                process = None
                return prepare(batch, self._recipe)
        finally:
            self._free.put(process)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # what a pickle holds

    def close(self) -> None:
        """End the processes, whatever they are at."""
        self._closing.set()
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):  # what was still to be sent
                    pipe.close()


def serve() -> None:
    """Prepare the batches that come on standard input until it ends; what a helper does."""
    while True:
        try:
            batch, recipe = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: Prepared | Exception
        try:
            answer = prepare(batch, recipe)
        except (DataError, ColourFound) as error:
            answer = error
        pickle.dump(answer, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()
