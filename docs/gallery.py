"""The gallery of the site: every picture that `smtdist.plot` draws, of a model of handwritten digits."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smtdist import plot
from smtdist.plot.figures import theme

PREPARED = """\
import numpy as np
from sklearn.datasets import load_digits

import smtdist
from smtdist import plot
from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.evaluate.run import Labelled
from smtdist.report.looks import look_at_some, matching_windows

digits = load_digits()
images = np.clip(digits.images * 16, 0, 255).astype(np.uint8)
smt = smtdist.SMT(patch_size=4, n_atoms=128, n_components=16, pool_size=2).fit(images[:1200])
model = smt.model_
known, asked = (
    Labelled(ArraySource(images[part]), digits.target[part]) for part in (slice(1200), slice(1200, 1500))
)
looked = look_at_some(model, known, asked, 1200, Engine(SerialExecutor()))
wrong = np.flatnonzero(looked.found != looked.asked_labels)[:6]
"""
PICTURES = {
    "spectrum": "plot.spectrum(model)",
    "dictionary": "plot.dictionary(model)",
    "atom_neighbours": "plot.atom_neighbours(model)",
    "image_map": "plot.image_map(looked.asked_z, looked.asked, looked.asked_labels)",
    "confusion": "plot.confusion(looked.evaluation.confusion)",
    "neighbours": "plot.neighbours(looked.asked[wrong], looked.known[looked.rows[wrong]])",
    "matching_patches": (
        "plot.matching_patches(looked.asked[0], looked.known[looked.rows[0, 0]], "
        "matching_windows(looked, 0, int(looked.rows[0, 0])))"
    ),
    "curve": 'plot.curve(np.bincount(digits.target), "class", "digits")',
    "filter_axes": "plot.filter_axes(plot.atoms_as_patches(model)[:64])",
}
"""What draws each picture; `sheet` and `atoms_as_patches` return arrays, which these show."""


def names() -> dict[str, Any]:
    """Return what the examples of the gallery may use, prepared."""
    found: dict[str, Any] = {}
    exec(PREPARED, found)
    return found


def first_sentence(function: Callable[..., Any]) -> str:
    """Return what a function does, in its own words."""
    text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return text.partition("; return the axes")[0].rstrip(".") + "."


def write(folder: Path) -> None:
    """Draw all pictures to FOLDER/gallery and write FOLDER/gallery.md."""
    pictures = folder / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    known = names()
    lines = [
        "# Gallery",
        "",
        "Each function draws into matplotlib axes and returns them. All of these are of one model:",
        "",
    ]
    lines += ["```python", *PREPARED.strip().splitlines(), "```", ""]
    for name, example in PICTURES.items():
        with theme():
            axes = eval(example, known)
            axes.figure.savefig(pictures / f"{name}.png", dpi=90)
        said = first_sentence(getattr(plot, name))
        lines += [f"## {name}", "", said, "", f"![{said}](gallery/{name}.png)", "", f"    {example}", ""]
    (folder / "gallery.md").write_text("\n".join([*lines, ""]))
