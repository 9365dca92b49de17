"""Some blocks of a text file, with stretches of the text left out: what is read when part of a file is withdrawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from smtdist.data.source import Derived, Reader
from smtdist.data.text import BLOCK, WIDTH, TextSource
from smtdist.errors import DataError

Stretch = tuple[int, int]
"""First byte of a file's text, and the one after the last."""

_PIECE: Final = 2**20
_UNSURE: Final = 4
"""A block begins up to two blocks' length after its number times `BLOCK`: so many at either end are looked at."""


@dataclass(frozen=True)
class TextCut(Derived):
    """The blocks `blocks` of the one file of `source`, in ascending order, without the bytes in `holes`.

    What is left of a block is moved together, so that a stretch of whole paragraphs leaves whole
    paragraphs. Blocks keep the places they have in the whole file.
    """

    source: TextSource
    blocks: tuple[int, ...]
    holes: tuple[Stretch, ...]
    unit = "tokens"

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]  # a field of the base class, computed here
        """(blocks, bytes)."""
        return len(self.blocks), WIDTH

    @property
    def text_bytes(self) -> int:
        """At most so many bytes of text."""
        return min(self.source.text_bytes, WIDTH * len(self.blocks))

    def describe(self) -> dict[str, Any]:
        """Return file, blocks and holes as plain JSON."""
        return {
            **self.source.describe(),
            "blocks": list(self.blocks),
            "holes": [list(hole) for hole in self.holes],
        }

    def fill(self, inner: Reader, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """Write the chosen blocks."""
        numbers = self.blocks[start:stop]
        # runs of neighbouring blocks are read together
        breaks = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
        for first, end in pairwise([0, *breaks, len(numbers)]):
            inner.read(numbers[first], numbers[end - 1] + 1, out[first:end])
            edges = inner.edges  # type: ignore[attr-defined]  # a reader of text has them
            for row, (left, right) in zip(out[first:end], pairwise(edges), strict=True):
                self._cut(row, left, right)

    def _cut(self, row: npt.NDArray[np.uint8], left: int, right: int) -> None:
        met = [hole for hole in self.holes if hole[0] < right and hole[1] > left]
        if not met:
            return
        kept = [row[a - left : b - left] for a, b in without([(left, right)], met)]
        text = np.concatenate([np.zeros(0, np.uint8), *kept])
        row[: len(text)] = text
        row[len(text) :] = 0


def without(stretches: Iterable[Stretch], holes: Iterable[Stretch]) -> list[Stretch]:
    """Return what is left of stretches, in order, outside of holes.

    >>> without([(0, 10), (20, 30)], [(3, 5), (8, 25)])
    [(0, 3), (5, 8), (25, 30)]
    """
    left = sorted(stretches)
    for begin, end in holes:
        left = [
            (a, b)
            for low, high in left
            for a, b in ((low, min(high, begin)), (max(low, end), high))
            if a < b
        ]
    return left


def line_bytes(source: TextSource, ranges: Sequence[tuple[int, int]]) -> list[Stretch]:
    """Return where ranges of lines, the first of a file being 1 and the last included, lie in its text.

    Reads the file once, from its beginning to the last line asked for. Memory: 1 MiB. DataError for lines
    that are not.
    """
    wanted = sorted({first - 1 for first, _ in ranges} | {last for _, last in ranges})
    begins, at, line = {0: 0}, 0, 0
    file = source.files[0]
    with source.opened() as reader:
        while at < file.size and wanted and wanted[-1] not in begins:
            piece = reader.text(at, min(at + _PIECE, file.size))  # type: ignore[attr-defined]
            ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == ord("\n"))
            begins |= {
                number: at + int(ends[number - line - 1]) + 1
                for number in wanted
                if line < number <= line + len(ends)
            }
            at, line = at + len(piece), line + len(ends)
            last = piece[-1:]
    if wanted[-1] not in begins and at == file.size and last != b"\n" and wanted[-1] == line + 1:
        begins[line + 1] = file.size  # the last line, without an end
    for first, last_line in ranges:
        if not 1 <= first <= last_line or last_line not in begins or first - 1 not in begins:
            raise DataError(
                f"{file.path} has no lines {first} to {last_line}; the first is 1, and the last must be in the file."
            )
    return [(begins[first - 1], begins[last]) for first, last in ranges]


def touched(source: TextSource, stretch: Stretch, holes: Sequence[Stretch]) -> tuple[list[int], list[int]]:
    """Return the blocks of a file that have text in a stretch, and those of them that have other text outside `holes`.

    Only blocks near both ends are read.
    """
    begin, end = stretch
    n_blocks = source.files[0].n_blocks
    low, high = max(0, begin // BLOCK - 2), min(n_blocks, -(-end // BLOCK) + 1)
    inner = range(low + _UNSURE, high - _UNSURE)
    met, kept = [], []
    with source.opened() as reader:
        for block in range(low, high):
            if block in inner:
                met.append(block)
                continue
            reader.read(block, block + 1)
            left, right = reader.edges  # type: ignore[attr-defined]
            if left < end and right > begin:
                met.append(block)
                if without([(left, right)], holes):
                    kept.append(block)
    return met, kept
