"""The console that all lines and tables go through: what names hold is shown, and never obeyed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from smtdist.errors import visible


class VisibleConsole(Console):
    """A console of rich that writes out control characters, and takes square brackets and colons for what they are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

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
