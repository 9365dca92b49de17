"""From fits to the figures of cells: representations made block by block, judged while they pass by."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.steps import Steps
from replication.quality.cells import JUDGES, SEEN, TEST, Cell, Fit, Part
from replication.quality.codes_alone import CodesAlone, PooledFirst
from replication.quality.directions import leading_of
from replication.quality.fits import components_of, fitted, passes_of, wanted_components
from replication.quality.images import Images, judges, read
from replication.quality.placed import placed_rows, placed_type
from replication.quality.rows import Rows
from smtdist.engine.executor import Executor
from smtdist.engine.memory import memory_limit, peak_bytes, reset_peak
from smtdist.engine.passes import Engine
from smtdist.evaluate.knn import (
    PACKED_ROWS,
    NearestSoFar,
    SoftNeighbours,
    evaluation_of,
    neighbours_of,
    vote,
)
from smtdist.evaluate.leading import Leading
from smtdist.evaluate.linear import LinearClassifier, fit_probe
from smtdist.evaluate.metrics import wilson
from smtdist.kernels.cpu.table import table_of
from smtdist.kernels.device import device_name
from smtdist.kernels.threads import available_cores
from smtdist.models.model import Model
from smtdist.models.tuning.members import Member, represent_slices, slices_of

BLOCK: Final = 500
"""Most images of a step."""
BLOCK_BYTES: Final = 2**30
"""Most bytes of a step's representations."""
KNN_BYTES: Final = 2**31
"""Most bytes of test rows that are compared at once, where they do not stay in memory."""

KINDS: Final[dict[str, type[Member]]] = {"codes": CodesAlone, "pooled first": PooledFirst}
"""Ways of solving whose codes do not become an embedding of each patch."""

Made = tuple[str, int, int, float]
"""What makes a representation of codes: the way of solving, side and step of the pooling windows, the ridge."""


class Family:
    """Cells that share fits: what their representations are made of, and the images to learn from and to judge by.

    Cells that differ in their votes alone share a representation, its rows and its nearest neighbours. Mirrored images follow
    the others, and are compared only for cells in which they vote.
    """

    def __init__(
        self, work: Steps, cells: Sequence[Cell], data: Path, tests: int, executor: Executor, memory: int
    ) -> None:
        self.name = f"{tests or 'all'}"
        self.work, self.cells, self.engine, self.memory = work, list(cells), Engine(executor), memory
        self.fits = {part.fit.key: part.fit for cell in cells for part in cell.parts}
        parts = [part for cell in cells for part in cell.parts]
        self.models: dict[str, Model] = {}
        self.searches: dict[str, NearestSoFar] = {}
        for key, asked in self.fits.items():
            needed = wanted_components([part for part in parts if part.fit.key == key])
            self.models[key] = fitted(work, asked, needed, data, executor)
        self.members = self._members(parts)
        self.shared: dict[str, list[Cell]] = {}
        for cell in self.cells:
            self.shared.setdefault(cell.representation, []).append(cell)
        # the images are those of any fit: they differ in settings only
        some = next(iter(self.fits.values()))
        self.test = judges(data, some, cells[0].judge, tests)
        self.train = read(data, some, "train", some.n_train)
        self.every = self.train.and_mirrored() if any(cell.mirrored for cell in cells) else self.train
        sample = 4 * sum(
            (last - first) * member.pooled
            for members in self.members.values()
            for member in members.values()
            for first, last in member.slices
        )
        self.step = max(8, min(BLOCK, BLOCK_BYTES // sample))
        self.tag = f"{self.name}-{self.step}"
        self.placed = {
            cell.key: kind
            for cell in cells
            if cell.classifier == "linear" and len(cell.parts) == 1 and (kind := self._placed_type(cell))
        }
        self.leading = {
            key: self._leading(cells[0]) for key, cells in self.shared.items() if cells[0].leading
        }

    def _members(self, parts: Sequence[Part]) -> dict[str, dict[Made, Member]]:
        """Return for every fit, way of solving and pooling the member that represents images, with the slices asked of it."""
        found: dict[str, dict[Made, Member]] = {}
        for key, model in self.models.items():
            own, encoder = [part for part in parts if part.fit.key == key], model.encoder
            for made in dict.fromkeys(map(_made, own)):
                same = [part for part in own if _made(part) == made]
                longest = max(same, key=lambda part: part.drop + (part.n_components or len(encoder.atoms)))
                table = table_of(components_of(self.work, model, longest))
                slices = tuple(sorted({_slice(part, table.shape[1]) for part in same}))
                _, size, stride, _ = made
                kind = KINDS.get(made[0], Member)
                member = kind(encoder, table, slices, size, stride, "float32")
                found.setdefault(key, {})[made] = member
            model_without_sums(self.models, key)
        return found

    def _placed_type(self, cell: Cell) -> str | None:
        """Return the type of rows that a probe learns from on a device, None where they lie in files."""
        part = cell.parts[0]
        member = self.members[part.fit.key][_made(part)]
        return placed_type(len(self.every.labels), member.pooled * _count(member, part))

    def blocks(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of images that are steps."""
        return [(start, min(start + self.step, last)) for start in range(first, last, self.step)]

    def blocks_of(self, cell: Cell) -> list[tuple[int, int]]:
        """Return the steps of the images that a cell learns from: mirrored ones have steps of their own."""
        count = len(self.train.labels)
        return self.blocks(0, count) + (self.blocks(count, 2 * count) if cell.mirrored else [])

    def _leading(self, cell: Cell) -> Leading:
        """Return the directions in which a cell compares."""

        def represent(images: Images, start: int, stop: int) -> NDArray[np.float32]:
            self.work.heed()
            with self._timed():
                return self._whole(images, start, stop, [cell])[cell.representation]

        name = f"leading/{cell.representation}-{self.step}"
        images = self.every if cell.mirrored else self.train
        return leading_of(self.work, name, images, represent, self.step, cell.leading, cell.whiten)

    def represented(
        self, images: Images, start: int, stop: int, keys: Iterable[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the representations (n, features) of some images, as they are compared, by their keys."""
        found = self._whole(images, start, stop, [self.shared[key][0] for key in keys])
        return {
            key: self.leading[key].of(rows) if key in self.leading else rows for key, rows in found.items()
        }

    def _whole(
        self, images: Images, start: int, stop: int, cells: Sequence[Cell]
    ) -> dict[str, NDArray[np.float32]]:
        """Return the representations (n, features) of some images for some cells, by key."""
        wanted = {(part.fit.key, _made(part)) for cell in cells for part in cell.parts}
        views: dict[tuple[str, Made], dict[tuple[int, int], NDArray[Any]]] = {}
        for key, members in self.members.items():
            ways = {made: member for made, member in members.items() if (key, made) in wanted}
            if not ways:
                continue
            # members of a fit have its encoder, and share its codes
            flats = represent_slices(
                slices_of(tuple(ways.values()), self.engine), images.source, start, stop
            )
            assert flats is not None
            for (made, member), flat in zip(ways.items(), flats, strict=True):
                found = member.views(flat, stop - start)
                views[key, made] = dict(zip(member.slices, found, strict=True))
        result = {}
        for cell in cells:
            own = []
            for part in cell.parts:
                member = self.members[part.fit.key][_made(part)]
                own.append(views[part.fit.key, _made(part)][_slice(part, member.components.shape[1])])
            result[cell.representation] = own[0] if len(own) == 1 else np.concatenate(own, axis=1)
        return result

    def run(self) -> None:
        """Judge all cells; what is done is kept."""
        work = self.work
        asked: dict[str, Rows] = {key: Rows() for key in self.shared}
        for start, stop in self.blocks(0, len(self.test.labels)):
            self._keep(start, stop)
            for key, rows in asked.items():
                rows.parts.append(np.load(work.path(self._test_file(key, start)), mmap_mode="r"))
        held = self._held(asked)
        # images as they are come first
        for block in dict.fromkeys(block for cell in self.cells for block in self.blocks_of(cell)):
            self._learn(held, *block)
        for cell in self.cells:
            self._judge(cell, asked[cell.representation])
        work.forget("rows/*")
        work.forget("near/*")

    def _held(self, asked: dict[str, Rows]) -> dict[str, Any]:
        """Return rows of test images in memory, the smallest first, and as they lie in files where there is no more room."""
        left, held = self.memory, dict[str, Any](asked)
        for key, rows in sorted(asked.items(), key=lambda item: item[1].shape[1]):
            left -= rows.shape[0] * rows.shape[1] * 4
            if left >= 0 and any(cell.classifier == "knn" for cell in self.shared[key]):
                held[key] = rows[:]
        return held

    def _keep(self, start: int, stop: int) -> None:
        """Keep the representations of some test images."""
        names = {key: self._test_file(key, start) for key in self.shared}
        if all(map(self.work.done, names.values())):
            return
        self.work.heed()
        with self._timed():
            for key, values in self.represented(self.test, start, stop, names).items():
                self.work.keep_array(names[key], values)

    def _learn(self, asked: dict[str, Any], start: int, stop: int) -> None:
        """Find the neighbours of all test images in a block of training images; keep its rows where a probe learns from them."""
        open_ones: dict[str, set[str]] = {}
        for cell in self.cells:
            if cell.key in self.placed:
                continue
            key, linear = cell.representation, cell.classifier == "linear"
            name = (self._row_file if linear else self._near_file)(key, start)
            if (start, stop) in self.blocks_of(cell) and not self.work.done(name):
                open_ones.setdefault(key, set()).add(name)
        if not open_ones:
            return
        self.work.heed()
        with self._timed():
            found = self.represented(self.every, start, stop, open_ones)
            for key, names in open_ones.items():
                if (name := self._row_file(key, start)) in names:
                    self.work.keep_array(name, found[key])
                if (name := self._near_file(key, start)) in names:
                    self.work.keep_array(name, self._nearest(key, asked[key], found[key], start))

    def _nearest(self, key: str, asked: Any, rows: NDArray[np.float32], start: int) -> NDArray[np.int64]:
        """Return the keys of the nearest rows so far after those from number `start` on, whose block is the next."""
        most, stays = self._most(key), isinstance(asked, np.ndarray)
        part = len(asked) if stays else max(1, KNN_BYTES // (4 * asked.shape[1]))
        count = len(self.train.labels)
        earlier = [
            begin for begin, _ in self.blocks(0, count) + self.blocks(count, 2 * count) if begin < start
        ]
        goes_on = bool(earlier) and key not in self.searches
        before = np.load(self.work.path(self._near_file(key, earlier[-1]))) if goes_on else None
        keys = []
        for first in range(0, len(asked), part):
            here = slice(first, first + part)
            search = self.searches.get(key) if stays else None
            if search is None:
                own = None if before is None else before[here]
                packed = min(len(asked[here]), self.step) >= PACKED_ROWS
                search = NearestSoFar(asked[here], most, self.step, own, packed)
                if stays:
                    self.searches[key] = search
            search.learn(rows, start)
            keys.append(search.keys)
        return np.concatenate(keys)

    def _most(self, key: str) -> int:
        """Return the neighbours of which the cells of a representation need the first."""
        return max(cell.k for cell in self.shared[key])

    def _test_file(self, key: str, start: int) -> str:
        return f"rows/{key}-test-{self.tag}-{start}.npy"

    def _row_file(self, key: str, start: int) -> str:
        return f"rows/{key}-train-{self.tag}-{start}.npy"

    def _near_file(self, key: str, start: int) -> str:
        return f"near/{key}-{self._most(key)}-{self.tag}-{start}.npy"

    def _judge(self, cell: Cell, test_z: Rows) -> None:
        """Keep which test images a cell gets right, and what else is known of it."""
        self.work.heed()
        started = time.perf_counter()
        reset_peak()
        known, wanted = self.every.labels, self.test.labels
        blocks = self.blocks_of(cell)
        more: dict[str, Any] = {}
        if cell.classifier == "linear":
            plain, every = self._probed(cell)
            probe = probe_of(plain, every, known)
            del plain, every
            logits = np.asarray(test_z[:], np.float64) @ probe.coefficients.T + probe.intercepts
            if logits.shape[1] == 1:
                logits = np.concatenate([-logits, logits], axis=1)
            right = probe.classes[logits.argmax(axis=1)] == wanted
            more = {"C": probe.C, "converged": probe.converged, "mirrored": cell.mirrored}
            more |= {"path": list(probe.path), "rows": self.placed.get(cell.key, "float32")}
        else:
            keys = np.load(self.work.path(self._near_file(cell.representation, blocks[-1][0])))
            cosines, rows = neighbours_of(keys)
            k = min(cell.k, blocks[-1][1])
            cosines, rows = cosines[:, :k], rows[:, :k]
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
                "data": cell.parts[0].fit.data,
                "judge": cell.judge,
                "judged_by": JUDGES[cell.judge],
                "n_train": len(self.train.labels),
                **({} if cell.classifier == "linear" else _votes(cell)),
                "n_test": len(right),
                "standard_error": float(np.sqrt(right.mean() * (1 - right.mean()) / len(right))),
                **_unseen(cell, right),
                "dictionary": settings_of.n_atoms,
                **({"leading": cell.leading, "whiten": cell.whiten} if cell.leading else {}),
                "components": [_count(self.members[p.fit.key][_made(p)], p) for p in cell.parts],
                "asked_components": [part.asked_components for part in cell.parts],
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

    def _probed(self, cell: Cell) -> tuple[Any, Any]:
        """Return the rows of training images, and those and their mirror images' if a cell learns from these too."""
        count = len(self.train.labels)
        if cell.key in self.placed:
            part = cell.parts[0]
            member = self.members[part.fit.key][_made(part)]
            own = replace(
                member, slices=(_slice(part, member.components.shape[1]),), dtype=self.placed[cell.key]
            )
            every = placed_rows(own, (self.every if cell.mirrored else self.train).source, self.engine)
            return every[:count], every
        blocks = [
            (stop, np.load(self.work.path(self._row_file(cell.representation, start)), mmap_mode="r"))
            for start, stop in self.blocks_of(cell)
        ]
        return Rows([rows for stop, rows in blocks if stop <= count]), Rows([rows for _, rows in blocks])

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


def device() -> str:
    """Return what the kernels run on."""
    return device_name() or f"CPU, {available_cores()} cores"


def model_without_sums(models: dict[str, Model], key: str) -> None:
    """Let go of the K x K sums of a model: nothing after its components needs them."""
    models[key] = replace(models[key], statistics=None)


def probe_of(plain: Any, every: Any, labels: NDArray[np.int64]) -> LinearClassifier:
    """Return the linear probe of rows of images, and of every row where those of their mirror images follow.

    The penalty is chosen on images as they are, of which none is in both parts; with both views a loss counts half.
    """
    # rows that stay in memory are read once, and not in every pass
    memory = memory_limit() * 3 // 4
    probe = fit_probe(plain, labels[: len(plain)], memory_bytes=memory)
    if len(every) > len(plain):
        C = probe.C / 2
        probe = fit_probe(every, labels[: len(every)], C=C, memory_bytes=memory)
    return probe


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
    """Return the cells in groups that share a fit, directly or through another cell, and are judged by the same images."""
    if len(judges := dict.fromkeys(cell.judge for cell in cells)) > 1:
        apart = [[one for one in cells if one.judge == judge] for judge in judges]
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


def _made(part: Part) -> Made:
    """Return the way of solving, the pooling and the ridge."""
    return part.solve, *part.pooling, part.ridge


def _slice(part: Part, available: int) -> tuple[int, int]:
    last = min(part.drop + part.n_components, available) if part.n_components else available
    return part.drop, last


def _count(member: Member, part: Part) -> int:
    first, last = _slice(part, member.components.shape[1])
    return last - first


def _unseen(cell: Cell, right: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the figure of the test images that have judged nothing before, where there are such."""
    later = right[SEEN.get(cell.parts[0].fit.data, 0) :]
    if cell.judge != TEST or not 0 < len(later) < len(right):
        return {}
    interval = list(wilson(int(later.sum()), len(later)))
    return {"unseen": {"n_test": len(later), "top1": float(later.mean()), "interval": interval}}


def _votes(cell: Cell) -> dict[str, Any]:
    return {"vote": cell.vote, "k": cell.k, "temperature": cell.temperature, "mirrored": cell.mirrored}
