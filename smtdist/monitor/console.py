"""The console that all lines and tables go through: what names hold is shown, and never obeyed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from smtdist.errors import visible


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
