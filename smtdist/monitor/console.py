"""The console that all lines and tables go through, and a table that any terminal shows whole.

What names hold is shown, and never obeyed. Where a table is too wide, columns are left out, or go into a table below.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from smtdist.errors import visible

BETWEEN: Final = 2  # characters between two columns
FRAME: Final = 2


class VisibleConsole(Console):
    """A console of rich that writes out control characters, and takes square brackets and colons for what they are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print; what a file has in one line (`soft_wrap`) a terminal wraps between words, and a path stays whole."""
        if soft_wrap and self.is_terminal:
            objects = tuple(self._wrapped(one) if isinstance(one, str) else one for one in objects)
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def _wrapped(self, text: str) -> str:
        lines = text.split("\n")
        how: Any = {"width": self.width, "break_long_words": False, "break_on_hyphens": False}
        return "\n".join(textwrap.fill(line, **how) for line in lines)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is written; rich's own control codes are segments apart."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = (visible(line) for line in segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


@dataclass(frozen=True)
class Sheet:
    """Rows of texts under named columns, the first to the left and all others to the right.

    No word and no figure is cut. Where the columns do not fit, the first is wrapped between words. If that
    is not enough, those of `spare` are left out, in their order. If that is not enough either, all columns
    are shown in several tables, one below the other, each with the first column. Only a text that is longer
    than half a line is broken.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    spare: Sequence[str] = ()

    @cached_property
    def _widths(self) -> list[int]:
        cells = zip(self.columns, *self.rows, strict=True)
        return [max(map(cell_len, column)) for column in cells]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title and the tables."""
        if self.title:
            yield Text(self.title, style="bold")
        for columns, first in self._parts(options.max_width - FRAME):
            yield self._drawn(columns, first, options.max_width)

    def _parts(self, width: int) -> list[tuple[list[int], int]]:
        """Return the tables that fit a width: the columns beside the first, and the width of the first."""
        words = [word for row in (self.columns, *self.rows) for word in row[0].split()]
        least = min(max(map(cell_len, words), default=0), width // 2)
        every = list(range(1, len(self.columns)))
        shown, spare = every, list(self.spare)
        while spare and self._across(shown) > width - least:
            name = spare.pop(0)
            shown = [column for column in shown if self.columns[column] != name]
        if self._across(shown) > width - least:
            shown = every
        groups = self._groups(shown, width - least)
        # where a column leaves little room for the first, a path say, it is the first that is broken
        return [
            (group, min(self._widths[0], max(width - self._across(group), min(least, width // 4))))
            for group in groups
        ]

    def _groups(self, columns: list[int], width: int) -> list[list[int]]:
        """Return as few groups of columns as fit a width, and of about one width."""
        groups = self._cut(columns, width)
        fewer = groups
        while len(fewer) == len(groups) > 1:
            groups, width = fewer, width - 1
            fewer = self._cut(columns, width)
        return groups

    def _cut(self, columns: list[int], width: int) -> list[list[int]]:
        groups: list[list[int]] = [[]]
        for column in columns:
            if groups[-1] and self._across([*groups[-1], column]) > width:
                groups.append([])
            groups[-1].append(column)
        return groups

    def _across(self, columns: Sequence[int]) -> int:
        return sum(self._widths[column] + BETWEEN for column in columns)

    def _drawn(self, columns: Sequence[int], first: int, width: int) -> Table:
        result = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        result.add_column(self.columns[0], width=first, overflow="fold")
        room = width - FRAME - first - BETWEEN
        for column in columns:
            fits = self._widths[column] <= room
            result.add_column(self.columns[column], justify="right", no_wrap=fits, overflow="fold")
        for row in self.rows:
            result.add_row(row[0], *(row[column] for column in columns))
        return result
