"""One self-contained page: sections of text, tables and pictures, in a file that asks nothing of any network."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import jinja2

from smtdist.errors import visible
from smtdist.plot import figures


@dataclass(frozen=True)
class Facts:
    """Names and values side by side."""

    caption: str
    rows: Sequence[tuple[str, str]]
    kind: str = "facts"


@dataclass(frozen=True)
class Table:
    """Rows of texts under named columns."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: str = "table"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Picture:
    """A picture with what it shows in words; `dark` is its twin for a dark page, None where one serves both."""

    caption: str
    words: str
    light: str
    dark: str | None = None
    wide: bool = False
    kind: str = "picture"


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Facts | Table | Text | Picture] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Return the section's address within the page."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


def address(png: bytes) -> str:
    """Return a picture as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def drawn(
    caption: str, words: str, draw: Callable[[], Any], *, plain: bool = False, dpi: int = 110
) -> Picture:
    """Return what `draw` returns axes of, drawn once for a light and once for a dark page; once if it is `plain` pixels."""

    def picture(dark: bool) -> str:
        with figures.theme(dark):
            return address(figures.as_png(draw().figure, dpi))

    return Picture(caption, words, picture(False), None if plain else picture(True))


def _shown(value: Any) -> Any:
    """Return what stands in the page: text without control characters but for ends of lines; marked-up text as it is."""
    return "\n".join(map(visible, value.split("\n"))) if type(value) is str else value


def render(title: str, summary: str, sections: Sequence[Section], facts: dict[str, Any]) -> str:
    """Return the page; `facts` are what its numbers are taken from, and lie in it as JSON for programs."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    template = environment.from_string(files("smtdist.report").joinpath("page.html.j2").read_text("utf-8"))
    # a script's text ends at the first "</", whatever it means there
    held = json.dumps(facts, allow_nan=False, default=float).replace("</", "<\\/")
    return template.render(title=title, summary=summary, sections=sections, facts=held)
