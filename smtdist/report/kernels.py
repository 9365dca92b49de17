"""Sections on a kernel model: its spectrum, the samples it remembers, and where it puts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist import plot
from smtdist.errors import counted
from smtdist.models import store
from smtdist.models.kernel.encoder import KernelEncoder
from smtdist.models.kernel.model import KernelModel
from smtdist.plot import figures
from smtdist.report.page import Section, Table, drawn

SAMPLES: Final = 144
"""Remembered samples that are shown."""
POINTS: Final = 2000
"""Remembered samples on the map."""


def kernel_sections(path: Path) -> list[Section]:
    """Return the spectrum of a kernel model, the samples it remembers and their embedding: what the file holds of them."""
    model = store.load(path)
    sections, spectra = list[Section](), list[Section]()
    if model.spectrum is not None:
        values = model.spectrum.eigenvalues
        words = f"A curve of {len(values)} eigenvalues from {values[0]:.4g} to {values[-1]:.4g}."
        caption = (
            f"Eigenvalues: {model.spectrum.n_positive:,} positive, {model.spectrum.n_negative:,} negative."
        )
        picture = drawn(caption, words, lambda: plot.curve(values, "eigenvalue, by number", "eigenvalue"))
        spectra.append(Section("Spectrum", [picture]))
    rows = remembered(model)
    if rows is None:
        return spectra
    height, width, channels = model.shape
    if min(height, width) > 1 and rows.shape[1] == height * width * channels:
        some = rows[:SAMPLES].reshape(-1, height, width, channels)
        mosaic = drawn(
            f"The first {len(some):,} of {counted(len(rows), 'sample')} that the model remembers.",
            "A sheet of the images that the model was fitted on.",
            lambda: plot.filter_axes(some),
            plain=True,
        )
        sections.append(Section("Remembered samples", [mosaic]))
    shown = np.asarray(model.encoder(rows[:POINTS]), np.float64)
    lines = [
        [
            str(number),
            f"{column.mean():.4g}",
            f"{column.std():.4g}",
            f"{column.min():.4g} to {column.max():.4g}",
        ]
        for number, column in enumerate(shown.T)
    ]
    table = Table(
        f"Components over {len(shown):,} remembered samples",
        ["component", "mean", "deviation", "range"],
        lines,
    )
    blocks: list[Any] = [table]
    if shown.shape[1] >= 2:
        caption = f"The first two components of {len(shown):,} remembered samples."
        blocks.insert(
            0, drawn(caption, "A cloud of points in two dimensions.", lambda: cloud(shown[:, :2]))
        )
    return [Section("Embedding", blocks), *sections, *spectra]


def remembered(model: KernelModel) -> NDArray[Any] | None:
    """Return the rows (m, d) that a model keeps, None for one of explicit features."""
    return model.encoder.rows if isinstance(model.encoder, KernelEncoder) else None


def cloud(points: NDArray[Any], axes: Any = None) -> Any:
    """Draw points (n, 2); return the axes."""
    axes = figures.own_axes(axes, (4.2, 4.2))
    axes.scatter(*points.T, s=6, alpha=0.7)
    axes.set_xlabel("component 0")
    axes.set_ylabel("component 1")
    axes.grid(alpha=0.4)
    return axes
