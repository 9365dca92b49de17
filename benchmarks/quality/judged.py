"""From fits to the figures of cells: representations made block by block, judged while they pass by."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.cells import Cell, Fit, Part
from benchmarks.quality.directions import leading_of
from benchmarks.quality.fits import components_of, fitted, passes_of, wanted_components
from benchmarks.quality.images import Images, read
from benchmarks.quality.rows import Rows
from benchmarks.steps import Steps
from smtdist.engine.executor import Executor, available_cores
from smtdist.engine.memory import peak_bytes, reset_peak
from smtdist.engine.passes import Engine
from smtdist.evaluate.knn import SoftNeighbours, evaluation_of, nearest, vote
from smtdist.evaluate.leading import Leading
from smtdist.evaluate.metrics import wilson
from smtdist.evaluate.probe import fit_probe
from smtdist.kernels.device import gpu_available
from smtdist.models.model import Model
from smtdist.models.tuning.members import Member, represent_slices, slices_of

BLOCK: Final = 500
"""Most images of a step."""
BLOCK_BYTES: Final = 384 * 2**20
"""Most bytes of a step's representations."""


class Family:
    """Cells that share fits: what their representations are made of, and the images to learn from and to judge by."""

    def __init__(
        self, work: Steps, cells: Sequence[Cell], data: Path, tests: int, executor: Executor, memory: int
    ) -> None:
        self.name = f"{tests or 'all'}"
        self.work, self.cells, self.engine, self.memory = work, list(cells), Engine(executor), memory
        self.k = max(cell.k for cell in cells)
        self.fits = {part.fit.key: part.fit for cell in cells for part in cell.parts}
        parts = [part for cell in cells for part in cell.parts]
        self.models: dict[str, Model] = {}
        for key, asked in self.fits.items():
            needed = wanted_components([part for part in parts if part.fit.key == key])
            self.models[key] = fitted(work, asked, needed, data, executor)
        self.members = self._members(parts)
        # the images are those of any fit: they differ in settings only
        some = next(iter(self.fits.values()))
        self.train = read(data, some, "train", some.n_train)
        if cells[0].mirrored:
            self.train = self.train.and_mirrored()
        self.test = judges(data, some, cells[0].judge, tests)
        sample = 4 * sum(
            (last - first) * member.pooled
            for members in self.members.values()
            for member in members.values()
            for first, last in member.slices
        )
        self.step = max(8, min(BLOCK, BLOCK_BYTES // sample))
        self.tag = f"{self.name}-{self.step}"
        self.leading = {cell.key: self._leading(cell) for cell in self.cells if cell.leading}

    def _members(self, parts: Sequence[Part]) -> dict[str, dict[str, Member]]:
        """Return for every fit and way of solving the member that represents images, with the slices asked of it."""
        found: dict[str, dict[str, Member]] = {}
        for key, model in self.models.items():
            encoder, settings = model.encoder, model.settings
            own = [part for part in parts if part.fit.key == key]
            for solve in dict.fromkeys(_made(part) for part in own):
                same = [part for part in own if _made(part) == solve]
                longest = max(same, key=lambda part: part.drop + (part.n_components or len(encoder.atoms)))
                components = components_of(self.work, model, longest)
                slices = tuple(sorted({_slice(part, components.shape[1]) for part in same}))
                pooling = settings.pool_size, settings.pool_stride, "float32"
                found.setdefault(key, {})[solve] = Member(encoder, components, slices, *pooling)
            model_without_sums(self.models, key)
        return found

    def blocks(self, images: Images) -> Iterator[tuple[int, int]]:
        """Yield the ranges of images that are steps."""
        count = len(images.labels)
        for start in range(0, count, self.step):
            yield start, min(start + self.step, count)

    def _leading(self, cell: Cell) -> Leading:
        """Return the directions in which a cell compares."""

        def represent(images: Images, start: int, stop: int) -> NDArray[np.float32]:
            self.work.heed()
            with self._timed():
                return self._whole(images, start, stop, [cell])[cell.key]

        name = f"leading/{cell.key}-{self.step}"
        return leading_of(self.work, name, self.train, represent, self.step, cell.leading, cell.whiten)

    def represented(self, images: Images, start: int, stop: int) -> dict[str, NDArray[np.float32]]:
        """Return the representations (n, features) of some images, as they are compared, for every cell, by its key."""
        found = self._whole(images, start, stop, self.cells)
        return {
            key: self.leading[key].of(rows) if key in self.leading else rows for key, rows in found.items()
        }

    def _whole(
        self, images: Images, start: int, stop: int, cells: Sequence[Cell]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the representations (n, features) of some images for some cells, by key."""
        wanted = {(part.fit.key, _made(part)) for cell in cells for part in cell.parts}
        views: dict[tuple[str, str], dict[tuple[int, int], NDArray[Any]]] = {}
        for key, members in self.members.items():
            made = {solve: member for solve, member in members.items() if (key, solve) in wanted}
            if not made:
                continue
            # members of a fit have its encoder, and share its codes
            flats = represent_slices(slices_of(tuple(made.values()), self.engine), images.source, start, stop)
            assert flats is not None
            for (solve, member), flat in zip(made.items(), flats, strict=True):
                found = member.views(flat, stop - start)
                views[key, solve] = dict(zip(member.slices, found, strict=True))
        result = {}
        for cell in cells:
            own = []
            for part in cell.parts:
                member = self.members[part.fit.key][_made(part)]
                own.append(views[part.fit.key, _made(part)][_slice(part, member.components.shape[1])])
            result[cell.key] = own[0] if len(own) == 1 else np.concatenate(own, axis=1)
        return result

    def run(self) -> None:
        """Judge all cells; what is done is kept."""
        work, tag = self.work, self.tag
        asked: dict[str, Rows] = {cell.key: Rows() for cell in self.cells}
        for start, stop in self.blocks(self.test):
            self._keep(f"test-{tag}", self.test, start, stop)
            for key, rows in asked.items():
                rows.parts.append(np.load(work.path(_named(key, f"test-{tag}", start)), mmap_mode="r"))
        # one read of what lies in files for all blocks
        fits = sum(rows.shape[0] * rows.shape[1] * 4 for rows in asked.values()) < self.memory
        held = {key: rows[:] if fits else rows for key, rows in asked.items()}
        for start, stop in self.blocks(self.train):
            self._nearest(held, start, stop)
        for cell in self.cells:
            self._judge(cell, asked[cell.key])
        work.forget("rows/*")
        work.forget("near/*")

    def _keep(self, group: str, images: Images, start: int, stop: int) -> None:
        names = {cell.key: _named(cell.key, group, start) for cell in self.cells}
        if all(map(self.work.done, names.values())):
            return
        self.work.heed()
        with self._timed():
            for key, values in self.represented(images, start, stop).items():
                self.work.keep_array(names[key], values)

    def _nearest(self, asked: dict[str, Any], start: int, stop: int) -> None:
        """Find the neighbours of all test images in a block of training images; keep its rows where a probe learns from them."""
        names = {cell.key: f"near/{cell.key}-{self.tag}-{start}.npy" for cell in self.cells}
        if all(map(self.work.done, names.values())):
            return
        self.work.heed()
        with self._timed():
            found = self.represented(self.train, start, stop)
            for cell in self.cells:
                if cell.classifier == "linear":
                    self.work.keep_array(_named(cell.key, f"train-{self.tag}", start), found[cell.key])
                    near = np.zeros(0)
                else:
                    cosines, rows = nearest(asked[cell.key], found[cell.key], min(self.k, stop - start))
                    near = np.stack([cosines.astype(np.float64), rows + start])
                self.work.keep_array(names[cell.key], near)

    def _judge(self, cell: Cell, test_z: Rows) -> None:
        """Keep which test images a cell gets right, and what else is known of it."""
        self.work.heed()
        started = time.perf_counter()
        reset_peak()
        known, wanted = self.train.labels, self.test.labels
        more: dict[str, Any] = {}
        if cell.classifier == "linear":
            names = [_named(cell.key, f"train-{self.tag}", start) for start, _ in self.blocks(self.train)]
            train_z = Rows([np.load(self.work.path(name), mmap_mode="r") for name in names])
            probe = fit_probe(train_z, known, memory_bytes=self.memory)
            logits = np.asarray(test_z[:], np.float64) @ probe.coefficients.T + probe.intercepts
            if logits.shape[1] == 1:
                logits = np.concatenate([-logits, logits], axis=1)
            right = probe.classes[logits.argmax(axis=1)] == wanted
            more = {"C": probe.logistic.C, "converged": probe.logistic.converged}
        else:
            parts = [
                np.load(self.work.path(f"near/{cell.key}-{self.tag}-{start}.npy"))
                for start, _ in self.blocks(self.train)
            ]
            cosines, rows = merged(parts, min(cell.k, len(known)))
            settings = SoftNeighbours(len(cosines[0]), cell.temperature, cell.vote)
            right = right_ones(cosines, rows, known, wanted, settings)
            found = evaluation_of(cosines, rows, known, wanted, settings)
            assert round(found.top1 * len(wanted)) == int(right.sum())
        seconds = time.perf_counter() - started
        self._add({"seconds": seconds, "peak_bytes": peak_bytes()})
        fits = [passes_of(self.work, part.fit) for part in cell.parts]
        passes = [one for records in fits for one in records]
        shared = self.work.facts(self._clock, dict)
        settings_of = self.models[cell.parts[0].fit.key].settings
        self.work.keep_array(f"cells/{cell.key}-{self.name}-right.npy", right)
        self.work.keep(
            f"cells/{cell.key}-{self.name}.json",
            {
                "top1": float(right.mean()),
                "interval": list(wilson(int(right.sum()), len(right))),
                "n_train": len(known) // (2 if cell.mirrored else 1),
                "mirrored": cell.mirrored,
                **({} if cell.classifier == "linear" else {"k": cell.k, "temperature": cell.temperature}),
                "n_test": len(right),
                "dictionary": settings_of.dictionary,
                **({"leading": cell.leading, "whiten": cell.whiten} if cell.leading else {}),
                "components": [_count(self.members[p.fit.key][_made(p)], p) for p in cell.parts],
                "fit_seconds": sum(one["seconds"] for one in passes),
                "judging_seconds": shared["seconds"],
                "judging_cells": len(self.cells),
                "seconds": sum(one["seconds"] for one in passes) + shared["seconds"],
                "device": device(),
                "peak_bytes": max([shared["peak_bytes"], *(one["peak_bytes"] for one in passes)]),
                "projected_bytes": max([0, *(one["projected_bytes"] for one in passes)]),
                "configurations": [part.fit.settings.to_dict() for part in cell.parts],
                **more,
            },
        )

    @property
    def _clock(self) -> str:
        cells = json.dumps(sorted(cell.key for cell in self.cells))
        return f"clocks/{hashlib.blake2b(cells.encode(), digest_size=6).hexdigest()}-{self.name}.json"

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the time and the memory of a step to those of the family."""
        started = time.perf_counter()
        reset_peak()
        yield
        self._add({"seconds": time.perf_counter() - started, "peak_bytes": peak_bytes()})

    def _add(self, taken: dict[str, float]) -> None:
        before = self.work.facts(self._clock, lambda: {"seconds": 0.0, "peak_bytes": 0})
        seconds = before["seconds"] + taken["seconds"]
        self.work.keep(
            self._clock,
            {"seconds": seconds, "peak_bytes": int(max(before["peak_bytes"], taken["peak_bytes"]))},
        )


def judges(data: Path, fit: Fit, judge: str, count: int) -> Images:
    """Return the images that a cell is judged by: the first of the test group, or the last of the training group.

    The latter are for choices, which the test images must not make; SystemExit where the fit has seen them.
    """
    if judge == "test":
        return read(data, fit, "test", count)
    every = read(data, fit, "train", 0)
    kept = len(every.labels) - (fit.n_train or len(every.labels))
    count = count or min(kept, 1000)
    if not 0 < count <= kept:
        raise SystemExit(
            f"The fit leaves {kept} training images to judge by; give --train or a smaller --test."
        )
    return Images(every.array[-count:], every.labels[-count:])


def device() -> str:
    """Return what the kernels run on."""
    return "GPU" if gpu_available() else f"CPU, {available_cores()} cores"


def model_without_sums(models: dict[str, Model], key: str) -> None:
    """Let go of the K x K sums of a model: nothing after its components needs them."""
    models[key] = replace(models[key], statistics=None)


def merged(parts: Sequence[NDArray[np.float64]], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the k nearest of several blocks' neighbours, (2, m, k') each: cosines and row numbers.

    >>> cosines, rows = merged([np.array([[[0.9, 0.1]], [[4, 2]]]), np.array([[[0.9]], [[1]]])], 2)
    >>> cosines.round(1).tolist(), rows.tolist()
    ([[0.9, 0.9]], [[1, 4]])
    """
    cosines, rows = np.concatenate(parts, axis=2)
    order = np.lexsort((rows, -cosines), axis=1)[:, :k]
    near = np.take_along_axis(cosines, order, axis=1).astype(np.float32)
    return near, np.take_along_axis(rows, order, axis=1).astype(np.int64)


def right_ones(
    cosines: NDArray[np.float32],
    rows: NDArray[np.int64],
    known: NDArray[np.int64],
    wanted: NDArray[np.int64],
    settings: SoftNeighbours,
) -> NDArray[np.bool_]:
    """Return which test images the neighbours classify rightly."""
    n_classes = int(max(known.max(), wanted.max())) + 1
    scores = vote(cosines, known[rows], n_classes, settings.vote, settings.temperature)
    return np.asarray(scores.argmax(axis=1) == wanted)


def families(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return the cells in groups that share a fit, directly or through another cell, and are judged the same way."""
    if len(kinds := dict.fromkeys((cell.judge, cell.mirrored) for cell in cells)) > 1:
        apart = [[one for one in cells if (one.judge, one.mirrored) == kind] for kind in kinds]
        return [group for own in apart for group in families(own)]
    groups: list[tuple[set[str], list[Cell]]] = []
    for cell in cells:
        keys, own = {part.fit.key for part in cell.parts}, [cell]
        far = []
        for group in groups:
            if group[0] & keys:
                keys, own = group[0] | keys, group[1] + own
            else:
                far.append(group)
        groups = [*far, (keys, own)]
    return [group for _, group in groups]


def fits_of(cells: Sequence[Cell]) -> dict[str, Fit]:
    """Return the fits of some cells, by key."""
    return {part.fit.key: part.fit for cell in cells for part in cell.parts}


def _made(part: Part) -> str:
    """Return the way of solving, under one name where two are the same."""
    return "pca-whitened" if part.solve == "whitened" else part.solve


def _slice(part: Part, available: int) -> tuple[int, int]:
    last = min(part.drop + part.n_components, available) if part.n_components else available
    return part.drop, last


def _count(member: Member, part: Part) -> int:
    first, last = _slice(part, member.components.shape[1])
    return last - first


def _named(key: str, group: str, start: int) -> str:
    return f"rows/{key}-{group}-{start}.npy"
