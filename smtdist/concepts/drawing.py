"""Figures of concepts: analograms, conceptual projections, sizes; drawn to files, without a display."""

from __future__ import annotations

import os
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from smtdist.concepts.analogram import analogram, networkx
from smtdist.concepts.model import ConceptModel
from smtdist.concepts.reading import SubConcept, sub_concepts
from smtdist.data.writing import whole_file
from smtdist.errors import DataError


def draw_analogram(
    graph: Any,
    path: str | os.PathLike[str],
    *,
    names: list[str] | None = None,
    concepts: list[str] | None = None,
    overwrite: bool = False,
) -> None:
    """Draw an analogram to a PNG file: observed points named, hidden nodes small, an edge in the colour of its concept."""
    nx = networkx()
    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    place = nx.kamada_kawai_layout(graph)
    colours = mpl.colormaps["tab20"]
    numbers = sorted({data["concept"] for _, _, data in graph.edges(data=True)})
    for at, number in enumerate(numbers):
        edges = [(u, v) for u, v, data in graph.edges(data=True) if data["concept"] == number]
        label = str(number) if concepts is None else concepts[number]
        nx.draw_networkx_edges(
            graph, place, edges, width=2, edge_color=[colours(at % 20)], ax=axes, label=label
        )
    seen = [node for node, points in graph.nodes(data="points") if points]
    hidden = [node for node in graph if node not in set(seen)]
    nx.draw_networkx_nodes(graph, place, seen, node_size=160, node_color="black", ax=axes)
    nx.draw_networkx_nodes(graph, place, hidden, node_size=40, node_color="lightgrey", ax=axes)
    for node in seen:
        points = graph.nodes[node]["points"]
        text = ", ".join(str(point) if names is None else names[point] for point in points)
        axes.annotate(text, place[node], xytext=(6, 6), textcoords="offset points")
    if len(numbers) <= 20:
        axes.legend(title="concept", fontsize="small")
    axes.set_axis_off()
    _write(figure, path, overwrite)


def draw_projection(
    horizontal: NDArray[np.float64],
    vertical: NDArray[np.float64],
    path: str | os.PathLike[str],
    *,
    names: dict[int, str] | None = None,
    labels: tuple[str, str] = ("", ""),
    overwrite: bool = False,
) -> None:
    """Draw a conceptual projection (Figure 4h) to a PNG file: every point along two sub-concepts, some of them named."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(horizontal, vertical, s=4, color="lightgrey", rasterized=True)
    for point, name in (names or {}).items():
        axes.plot(horizontal[point], vertical[point], "k.", markersize=5)
        axes.annotate(name, (horizontal[point], vertical[point]), fontsize="small")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    _write(figure, path, overwrite)


def draw_points(
    model: ConceptModel,
    points: list[int],
    prefix: str | os.PathLike[str],
    *,
    names: list[str] | None = None,
    overwrite: bool = False,
) -> tuple[list[SubConcept], list[str]]:
    """Draw chosen points to PREFIX-analogram.png and PREFIX-projection.png; return their sub-concepts and the files.

    The analogram has one edge class for each kind of concept that parts the points; the projection shows
    all points along the two kinds that part the chosen ones most evenly, of most concepts first, and is
    left out where there is one kind only. `names` (points,) or numbers are written beside the chosen ones.
    """
    label = [str(point) for point in range(model.points)] if names is None else names
    kinds = sub_concepts(model.concepts, points, model.weights)
    if not kinds:
        raise DataError(
            "No concept separates these points; choose points that differ, or find more concepts."
        )
    paths = [f"{os.fspath(prefix)}-analogram.png"]
    chosen = [label[point] for point in points]
    graph = analogram(np.array([kind.pattern for kind in kinds], np.uint8).T)
    insides = [", ".join(chosen[i] for i in np.flatnonzero(kind.pattern)) for kind in kinds]
    draw_analogram(graph, paths[0], names=chosen, concepts=insides, overwrite=overwrite)
    even = sorted(range(len(kinds)), key=lambda i: abs(2 * sum(kinds[i].pattern) - len(points)))[:2]
    if len(even) == 2:
        across, up = (kinds[i] for i in even)
        paths.append(f"{os.fspath(prefix)}-projection.png")
        draw_projection(
            across.values,
            up.values,
            paths[1],
            names={point: label[point] for point in points},
            labels=(f"like {insides[even[0]]}", f"like {insides[even[1]]}"),
            overwrite=overwrite,
        )
    return kinds, paths


def _write(figure: Figure, path: str | os.PathLike[str], overwrite: bool) -> None:
    with whole_file(path, overwrite) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
