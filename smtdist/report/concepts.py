"""Pictures of concepts: how large they are, and the analogram of the largest."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from smtdist import plot
from smtdist.concepts import drawing
from smtdist.concepts.analogram import analogram
from smtdist.concepts.model import ConceptModel
from smtdist.errors import DataError, counted
from smtdist.report.page import Picture, address, drawn

LARGEST: Final = 6
"""Concepts of the analogram."""
MOST_NODES: Final = 60


def sizes_picture(model: ConceptModel) -> Picture:
    """Return the sizes of all concepts, the largest first."""
    members = np.sort(model.members)[::-1]

    return drawn(
        f"Members of each of the {counted(len(members), 'concept')} among {counted(model.points, 'point')}.",
        f"A falling curve of the sizes of {counted(len(members), 'concept')}.",
        lambda: plot.curve(members, "concept, by size", "members"),
    )


def analogram_picture(model: ConceptModel) -> Picture | None:
    """Return the analogram of the largest concepts over all points; None where it would be too large to read."""
    chosen = np.argsort(-model.members, kind="stable")[:LARGEST]
    kinds, counts = np.unique(model.concepts[:, chosen], axis=0, return_counts=True)
    try:
        graph = analogram(kinds, most_nodes=MOST_NODES)
    except DataError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "analogram.png")
        names = [f"{count:,}" for count in counts]
        drawing.draw_analogram(graph, path, names=names, concepts=[str(number) for number in chosen])
        picture = address(path.read_bytes())
    caption = (
        f"Analogram of the {len(chosen)} largest concepts: a node is a combination of them with the number of its points, an "
        "edge is the one concept that changes, small nodes have no points."
    )
    words = f"A graph of {len(graph)} nodes joined by edges in the colours of {counted(len(chosen), 'concept')}."
    return Picture(caption, words, picture)
