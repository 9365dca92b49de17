"""Sections on a transform of video: spectra, dictionary, and how straight codes and embedding run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist import plot
from smtdist.data.video import Clip
from smtdist.models import store
from smtdist.models.functional.video import VideoModel
from smtdist.report.page import Section, Table, Text, drawn

ATOMS: Final = 256
"""Atoms that are shown."""


def video_sections(path: Path) -> list[Section]:
    """Return what a transform of video holds, layer by layer."""
    layers = store.load(path).layers
    spectra, mosaics, lines = [], [], []
    for number, layer in enumerate(layers, 1):
        values = layer.eigenvalues
        spectra.append(
            drawn(
                f"Layer {number}: generalised eigenvalues of its {len(values):,} components.",
                f"A rising curve of {len(values)} eigenvalues from {values[0]:.4g} to {values[-1]:.4g}.",
                lambda values=values: plot.curve(values, "component", "eigenvalue"),  # type: ignore[misc]
            )
        )
        patches = atoms_as_patches(layer, ATOMS)
        mosaics.append(
            drawn(
                f"Layer {number}: {len(patches):,} of {layer.coder.size:,} atoms as patches, each on a scale of its own.",
                "A mosaic of small patches, the atoms of the dictionary.",
                lambda patches=patches: plot.filter_axes(patches),  # type: ignore[misc]
                plain=True,
            )
        )
        lines.append([str(number), *(f"{value:.4g}" for value in path_straightness(layer))])
    what = "second differences" if layers[0].settings.difference_order == 2 else "steps"
    told = Text(
        f"Mean square of {what} over the variance, of the sequences that the transform was fitted on: 0 is at rest or, for "
        f"second differences, straight and steady; points without any order have {1.5 if what != 'steps' else 2}."
    )
    columns = ["layer", "codes", "embedding", "codes / embedding"]
    return [
        Section("Straightness", [told, Table("How straight paths run", columns, lines)]),
        Section("Dictionary", mosaics),
        Section("Spectrum", spectra),
    ]


def path_straightness(model: VideoModel) -> tuple[float, float, float]:
    """Return mean square differences over the variance, of the codes and of the embedding, and their ratio.

    They follow from the sums in the file: tr(P C Pᵀ) over tr(P V Pᵀ), V about the mean, and C brought from
    all positions to those that have a difference: of windows that overlap those of the shots of the fit. For
    second differences it is `Straightness.second_difference` of those sequences.
    """
    settings, sums = model.settings, model.means
    lengths = [settings.length]
    read = model.provenance.get("source", {}).get("clips", ()) if settings.overlap else ()
    if read:
        clips = (Clip("", name, frames, 0, 0, 0.0, tuple(cuts)) for name, frames, cuts in read)
        lengths = [last - first for clip in clips for first, last in clip.shots()]
    counted = [length for length in lengths if length > settings.difference_order]
    share = sum(counted) / (sum(counted) - settings.difference_order * len(counted))
    codes = share * float(sums.scatter.trace() / sums.covariance.trace())
    p = model.components
    embedded = share * float(np.trace(p @ sums.scatter @ p.T) / np.trace(p @ sums.covariance @ p.T))
    return codes, embedded, codes / embedded


def atoms_as_patches(model: VideoModel, most: int) -> NDArray[Any]:
    """Return the most active atoms as raw patches without the mean patch, (n, side, side, 1); of an upper layer by inverses."""
    order = np.argsort(-model.means.mean, kind="stable")[:most]
    codes = np.eye(model.coder.size)[order]
    rows = model.decode(codes) - model.decode(np.zeros((1, model.coder.size)))
    return rows.reshape(len(rows), model.settings.patch_size, model.settings.patch_size, 1)
