"""The sections of a report, by the kind of file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist import plot
from smtdist.concepts import drawing
from smtdist.concepts.analogram import analogram
from smtdist.concepts.model import ConceptModel
from smtdist.data.video import Clip
from smtdist.errors import ConfigurationError, DataError, counted
from smtdist.evaluate import metrics
from smtdist.models import store
from smtdist.models.functional.video import VideoModel
from smtdist.models.kernel.encoder import KernelEncoder
from smtdist.monitor import tables
from smtdist.plot import curve, figures
from smtdist.report.facts import looks_of
from smtdist.report.looks import Looked, matching_windows
from smtdist.report.page import Facts, Picture, Section, Table, Text, address, drawn

SHOWN: Final = 10
"""Misclassified images that are shown."""
FILTERS: Final = 400
MAPPED: Final = 300
"""Images on the map."""
WORDS: Final = 40
"""Frequent words whose neighbours are shown."""

REMEMBERED: Final = 144
"""Samples of a kernel model that are shown."""
POINTS: Final = 2000
"""The same on its map."""
ATOMS: Final = 256
"""Atoms of a transform of video that are shown."""
LARGEST: Final = 6  # concepts of the analogram
MOST_NODES: Final = 60  # of the analogram, more of which nobody can read


def settings(facts: dict[str, Any]) -> list[Section]:
    """Return the settings of a fit, where the file is of one."""
    rows = [
        (name, "none" if value is None else str(value)) for name, value in facts["configuration"].items()
    ]
    return [Section("Settings", [Facts("Settings of the fit", rows)])] if rows else []


def about(facts: dict[str, Any]) -> list[Section]:
    """Return what all files have: what they hold, and what was added and withdrawn."""
    shown = looks_of(facts["kind"]).readable(facts)
    sections = [
        Section("What it holds", [Facts("The file", [("size", tables.size(facts["bytes"])), *shown])])
    ]
    if facts["audit"]:
        lines = [
            [row["action"], f"{row['n_samples']:,}", row["source"], row["fingerprint"]]
            for row in facts["audit"]
        ]
        columns = ["what", "samples", "source", "fingerprint"]
        sections.append(Section("Audit", [Table("Data added and withdrawn, in order", columns, lines)]))
    return sections


def passes(records: Sequence[dict[str, Any]]) -> Section:
    """Return plan against measured, from the records of the passes that a fit printed."""
    lines = []
    for one in records:
        peak, projected = one.get("peak_bytes") or 0, one.get("projected_bytes") or 0
        lines.append(
            [
                one["name"],
                f"{one['n_samples']:,}" if one.get("n_samples") else "–",
                tables.duration(one.get("seconds")),
                tables.size(peak) if peak else "–",
                tables.size(projected) if projected else "–",
                f"{peak / projected:.0%}" if peak and projected else "–",
            ]
        )
    columns = ["pass", "samples", "time", "peak", "planned", "share"]
    return Section(
        "The run", [Table("Memory and time of each pass, beside what was planned", columns, lines)]
    )


def of_images(path: Path) -> list[Section]:
    """Return spectrum, dictionary and neighbours of a model of images."""
    return _of_transform(store.load(path))


def of_joined(path: Path) -> list[Section]:
    """Return those of each of several models side by side, under its name."""
    found = store.load(path)
    parts: Any = found.parts
    return [
        Section(f"{section.title} ({name})", section.blocks)
        for name, model in zip(found.names, parts, strict=True)
        for section in _of_transform(model)
    ]


def _of_transform(model: Any) -> list[Section]:
    dead, atoms = model.embedding.n_dead, len(model.embedding.dead)
    mosaic = drawn(
        f"The most active atoms as patches, unwhitened, each on its own scale; {dead:,} of {counted(atoms, 'atom')} never fire.",
        "A mosaic of small patches, the atoms of the dictionary.",
        lambda: plot.dictionary(model),
        plain=True,
    )
    near = drawn(
        "In each row an atom and its nearest neighbours in the embedding (SMT 2023, Figure 4).",
        "Rows of patches: an atom, followed by the atoms that the embedding puts beside it.",
        lambda: plot.atom_neighbours(model),
        plain=True,
    )
    values = model.embedding.eigenvalues
    caption = f"{_components(values)}; small ones vary slowly from patch to patch."
    return [Section("Dictionary", [mosaic, near]), Section("Spectrum", [_spectrum(values, caption)])]


def _components(values: NDArray[Any]) -> str:
    return f"Generalised eigenvalues of the {len(values):,} stored components"


def _spectrum(values: NDArray[Any], caption: str, across: str = "component") -> Picture:
    return drawn(
        caption,
        f"A curve of {len(values)} eigenvalues from {values[0]:.4g} to {values[-1]:.4g}.",
        lambda: curve(values, across, "eigenvalue"),
    )


def of_looks(looked: Looked, names: Sequence[str] | None) -> list[Section]:
    """Return the map of images, the confusion of classes, and what is misclassified, by which neighbours and patches."""
    found = looked.evaluation
    low, high = found.interval
    text = (
        f"{100 * found.top1:.2f} % of {counted(found.n_test, 'test image')} are right by their {found.k} nearest of "
        f"{counted(found.n_train, 'image')} (95 % interval {100 * low:.1f} to {100 * high:.1f})"
    )
    many = found.n_classes > 5
    text += f"; {100 * found.top5:.2f} % have their class among the first five." if many else "."
    beside: list[tuple[str, metrics.Judged]] = [("representation", found)]
    if found.raw_pixels is not None:
        text += f" By raw pixels {100 * found.raw_pixels.top1:.2f} % are. {found.advice}".rstrip()
        beside.append(("raw pixels", found.raw_pixels))
    lines = [
        [
            name,
            tables.percent(one.top1),
            " to ".join(map(tables.percent, one.interval)),
            *([tables.percent(one.top5)] if many else []),
        ]
        for name, one in beside
    ]
    columns = ["", "top-1", "95 % interval", *(["top-5"] if many else [])]
    accuracies = Table(f"By the {found.k} nearest neighbours", columns, lines)
    names = names if names and len(names) == len(found.confusion) else None
    matrix = drawn(
        "Which classes are taken for which: counts, and shares of the true class.",
        f"Confusion matrix of {counted(found.n_classes, 'class')}.",
        lambda: plot.confusion(found.confusion, names),
    )
    some = slice(0, MAPPED)
    where = drawn(
        f"{counted(min(MAPPED, len(looked.asked)), 'test image')} in the plane of their two largest principal components, in "
        "frames of the colour of their class.",
        "Thumbnails of test images, placed so that similar ones lie together.",
        lambda: plot.image_map(
            looked.asked_z[some], looked.asked[some], looked.asked_labels[some], names=names
        ),
    )
    return [
        Section("Accuracy", [Text(text), accuracies, matrix]),
        Section("Map of images", [where]),
        *_mistakes(looked, names),
    ]


def _mistakes(looked: Looked, names: Sequence[str] | None) -> list[Section]:
    wrong = np.flatnonzero(looked.found != looked.asked_labels)[:SHOWN]
    if not len(wrong):
        return []

    def name(label: int) -> str:
        return names[label] if names is not None and 0 <= label < len(names) else str(label)

    rows = looked.rows[wrong]
    other = looked.known_labels[rows] != looked.asked_labels[wrong, None]
    shown = drawn(
        f"Misclassified test images (left), each followed by its {rows.shape[1]} nearest neighbours; those of another class "
        "are framed.",
        "Rows of images: a misclassified one, then its nearest neighbours.",
        lambda: plot.neighbours(looked.asked[wrong], looked.known[rows], wrong=other),
        plain=True,
        dpi=140,
    )
    lines = [
        [
            str(int(at)),
            name(int(looked.asked_labels[at])),
            name(int(looked.found[at])),
            f"{float(looked.cosines[at, 0]):.3f}",
            ", ".join(name(int(label)) for label in looked.known_labels[looked.rows[at]]),
        ]
        for at in wrong
    ]
    columns = ["test image", "class", "found", "cosine of the nearest", "classes of the neighbours"]
    return [
        Section("Mistakes", [shown, Table("The same in words", columns, lines)]),
        Section("Matching patches", _matches(looked, wrong[:4])),
    ]


def _matches(looked: Looked, asked: Any) -> list[Picture]:
    pictures = []
    for at in asked:
        known = int(looked.rows[at, 0])
        windows = matching_windows(looked, int(at), known)
        pictures.append(
            drawn(
                f"Test image {int(at)} and its nearest neighbour: windows of one colour are most alike.",
                "Two images side by side with matching windows framed.",
                lambda at=at, known=known, windows=windows: plot.matching_patches(  # type: ignore[misc]
                    looked.asked[at], looked.known[known], windows
                ),
                plain=True,
            )
        )
    return pictures


def of_words(path: Path) -> list[Section]:
    """Return the spectrum of a model of words, and the neighbours of frequent words (SMT 2023, Figure 5)."""
    model = store.load(path, statistics=False)
    if model.embedding is None:
        return []
    alive = [
        word for word, dead in zip(model.vocabulary.words, model.embedding.dead, strict=True) if not dead
    ]
    # the very first are function words, whose neighbours say little
    chosen = alive[len(alive) // 50 : len(alive) // 50 + WORDS]
    lines = [[word, ", ".join(near.word for near in model.nearest(word, 8))] for word in chosen]
    nearest = Table("Words and those nearest to them", ["word", "nearest"], lines)
    values = model.embedding.eigenvalues
    spectrum = _spectrum(values, f"{_components(values)}.")
    return [Section("Neighbours of words", [nearest]), Section("Spectrum", [spectrum])]


def of_concepts(path: Path) -> list[Section]:
    """Return the concepts of a file by size, and their analogram where there are few."""
    model = store.load(path)
    lines = [
        [str(number), f"{int(size):,}", f"{int(size) / model.points:.1%}", f"{float(weight):.4g}"]
        for number, (size, weight) in enumerate(zip(model.members, model.weights, strict=True))
    ]
    columns = ["concept", "members", "share", "weight"]
    blocks: list[Any] = [sizes_picture(model), Table("Concepts", columns, lines)]
    graph = analogram_block(model)
    return [Section("Concepts", blocks), *([Section("Analogram", [graph])] if graph else [])]


def of_coder(path: Path) -> list[Section]:
    """Return what a coder or a transform on one has learned, and its objective round by round."""
    found = store.load(path)
    coder = found.coder
    if coder is not found:
        return [*_of_transform(found), *_learning(coder)]
    filters = coder.filters()
    shown = min(FILTERS, len(filters))
    mosaic = drawn(
        f"The first {shown:,} of {len(filters):,} filters, each on a scale of its own.",
        "A mosaic of small patches, the filters of the coder.",
        lambda: plot.filter_axes(filters[:shown]),
        plain=True,
    )
    return [Section("Filters", [mosaic]), *_learning(coder)]


def _learning(coder: Any) -> list[Section]:
    """Return the objective of a coder round by round, where there were rounds."""
    if len(coder.trace) < 2:
        return []
    trace = drawn(
        "The mean objective of a patch before the step of each round.",
        f"A curve from {coder.trace[0]:.4g} to {coder.trace[-1]:.4g}.",
        lambda: curve(coder.trace, "round", "objective"),
    )
    return [Section("Learning", [trace])]


def sizes_picture(model: ConceptModel) -> Picture:
    """Return the sizes of all concepts, the largest first."""
    members = np.sort(model.members)[::-1]

    return drawn(
        f"Members of each of the {counted(len(members), 'concept')} among {counted(model.points, 'point')}.",
        f"A falling curve of the sizes of {counted(len(members), 'concept')}.",
        lambda: curve(members, "concept, by size", "members"),
    )


def analogram_block(model: ConceptModel) -> Picture | Text | None:
    """Return the analogram of the largest concepts over all points, or what it needs; None if it is too large to read."""
    chosen = np.argsort(-model.members, kind="stable")[:LARGEST]
    kinds, counts = np.unique(model.concepts[:, chosen], axis=0, return_counts=True)
    try:
        graph = analogram(kinds, most_nodes=MOST_NODES)
    except ConfigurationError as missing:
        return Text(str(missing))
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


def of_kernel(path: Path) -> list[Section]:
    """Return the spectrum of a kernel model, the samples it remembers and their embedding: what the file holds of them."""
    model = store.load(path)
    sections, spectra = list[Section](), list[Section]()
    if (spectrum := model.spectrum) is not None:
        caption = f"Eigenvalues: {spectrum.n_positive:,} positive, {spectrum.n_negative:,} negative."
        spectra.append(Section("Spectrum", [_spectrum(spectrum.eigenvalues, caption, "number")]))
    if not isinstance(model.encoder, KernelEncoder):  # one of explicit features keeps no rows
        return spectra
    rows, (height, width, channels) = model.encoder.rows, model.shape
    if min(height, width) > 1 and rows.shape[1] == height * width * channels:
        some = rows[:REMEMBERED].reshape(-1, height, width, channels)
        mosaic = drawn(
            f"The first {len(some):,} of {counted(len(rows), 'sample')} that the model remembers.",
            "A sheet of the images that the model was fitted on.",
            lambda: plot.filter_axes(some),
            plain=True,
        )
        sections.append(Section("Remembered samples", [mosaic]))
    shown = np.asarray(model.encoder(rows[:POINTS]), np.float64)
    lines = [
        [str(number), f"{one.mean():.4g}", f"{one.std():.4g}", f"{one.min():.4g} to {one.max():.4g}"]
        for number, one in enumerate(shown.T)
    ]
    columns = ["component", "mean", "deviation", "range"]
    blocks: list[Any] = [Table(f"Components over {len(shown):,} remembered samples", columns, lines)]
    if shown.shape[1] >= 2:
        caption = f"The first two components of {len(shown):,} remembered samples."
        words = "A cloud of points in two dimensions."
        blocks.insert(0, drawn(caption, words, lambda: _cloud(shown[:, :2])))
    return [Section("Embedding", blocks), *sections, *spectra]


def _cloud(points: NDArray[Any]) -> Any:
    axes = figures.own_axes(None, (4.2, 4.2))
    axes.scatter(*points.T, s=6, alpha=0.7)
    axes.set_xlabel("component 0")
    axes.set_ylabel("component 1")
    axes.grid(alpha=0.4)
    return axes


def of_video(path: Path) -> list[Section]:
    """Return what a transform of video holds, layer by layer: spectra, dictionary, and how straight codes and embedding run."""
    layers = store.load(path).layers
    spectra, mosaics, lines = [], [], []
    for number, layer in enumerate(layers, 1):
        values = layer.eigenvalues
        caption = f"Layer {number}: generalised eigenvalues of its {len(values):,} components."
        spectra.append(_spectrum(values, caption))
        # the most active atoms as raw patches without the mean patch; of an upper layer by inverses
        order = np.argsort(-layer.means.mean, kind="stable")[:ATOMS]
        patches = layer.decode(np.eye(layer.coder.size)[order]) - layer.decode(
            np.zeros((1, layer.coder.size))
        )
        side = layer.settings.patch_size
        patches = patches.reshape(len(patches), side, side, 1)
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
    differing = [length for length in lengths if length > settings.difference_order]
    share = sum(differing) / (sum(differing) - settings.difference_order * len(differing))
    codes = share * float(sums.scatter.trace() / sums.covariance.trace())
    p = model.components
    embedded = share * float(np.trace(p @ sums.scatter @ p.T) / np.trace(p @ sums.covariance @ p.T))
    return codes, embedded, codes / embedded
