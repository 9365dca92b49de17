"""How a model, a plan or a result is shown: one line in Python, a small table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

FIGURES: Final = {
    "n_atoms": "K",
    "units": "K",
    "n_words": "words",
    "n_features": "features",
    "n_concepts": "concepts",
    "n_components": "components",
    "n_samples": "samples",
    "n_classes": "classes",
    "n_pairs": "pairs",
    "rank": "rank",
    "cka": "CKA",
    "n_dead": "dead atoms",
}
"""Figures of a `summary()` that are shown, and what they are called."""
IN_LINE: Final = ("K", "words", "features", "concepts", "components", "samples")
"""Those that are in the line too."""


class Shown:
    """What is shown by `shown()`; a subclass with a `summary()`, `settings` and `provenance` has that for nothing."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Keep the line: a dataclass writes one of its own, of all its arrays, where a class has none."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]

    def shown(self) -> Mapping[str, str]:
        """Return names and values, the most important first."""
        return figures(self)

    def line(self) -> str:
        """Return the most important of it in a few words."""
        shown = self.shown()
        named = {name: f"{shown[name]} {name}" for name in IN_LINE if name in shown}
        return ", ".join((named | {"K": f"K = {shown['K']}"} if "K" in named else named).values())

    def __repr__(self) -> str:
        """Return one line."""
        return f"<{type(self).__name__}: {self.line()}>"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, (), self.shown().items())


def figures(model: Any) -> dict[str, str]:
    """Return the figures of a model that a person asks for first, as text."""
    found = {} if getattr(model, "embedding", model) is None else dict(model.summary())
    settings = getattr(model, "settings", None)
    for name in ("n_components", "code", "patch_size"):
        found.setdefault(name, getattr(settings, name, None))
    found["n_samples"] = n_samples(getattr(model, "provenance", {})) or found.get("n_samples")
    named = {title: found.get(name) for name, title in FIGURES.items() if found.get(name) is not None}
    named |= {name: found[name] for name in ("code", "patch_size") if found[name] is not None}
    written = {int: ",", float: ".4g"}
    return {title: format(value, written.get(type(value), "")) for title, value in named.items()}


def parts(model: Any) -> dict[str, Any]:
    """Return the models of a file of models side by side, by name; nothing of another."""
    names = model.summary().get("models", ())
    return dict(zip(names, model.parts, strict=True)) if names else {}


def told(model: Any) -> list[str]:
    """Return its figures as sentences say them.

    >>> class Fitted:
    ...     def summary(self):
    ...         return {"n_atoms": 2048, "rank": 7}
    >>> told(Fitted())
    ['K = 2,048', 'rank 7']
    """
    before = {"K": "K = ", "rank": "rank ", "CKA": "CKA "}
    singular = {"classes": "class"}
    return [
        f"{before[title]}{value}"
        if title in before
        else f"{value} {singular.get(title, title.removesuffix('s')) if value == '1' else title}"
        for title, value in figures(model).items()
        if title in FIGURES.values()
    ]


def n_samples(provenance: Mapping[str, Any]) -> int:
    """Return how many samples a model was fitted on, by what was added and withdrawn, else by its source; 0 where neither says.

    >>> n_samples({"audit": [{"action": "added", "n_samples": 9}, {"action": "withdrawn", "n_samples": 2}]})
    7
    """
    try:
        if "audit" not in provenance:
            return int((provenance.get("source", {}).get("shape") or [0])[0])
        return sum(
            one["n_samples"] * (1 if one["action"] == "added" else -1) for one in provenance["audit"]
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return 0  # of a file that others have written


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table for a notebook, all text escaped.

    >>> html_table("a < b", (), [("K", "16")])
    '<table><caption>a &lt; b</caption><tr><td>K</td><td>16</td></tr></table>'
    """

    def line(cells: Iterable[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    head = line(columns, "th") if columns else ""
    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{escape(title)}</caption>{head}{body}</table>"
