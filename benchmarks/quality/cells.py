"""The cells of the published tables: which fit each needs, what is read from it, and what the paper has there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.quality import published
from smtdist.configuration import Configuration, preset
from smtdist.evaluate.run import Directions

SOLVES: Final = ("spectral", "codes", "whitened", "pca", "pca-whitened")
"""What makes components of the sums: the generalised eigenproblem, or what an ablation puts in its place."""
SHARED: Final = {"n_components": 1, "drop": 0}
"""Settings that readings of one fit may differ in, as they stand in its key."""
SOLVED: Final = {"null_tolerance": None, "moment": "second", "pool_size": 1, "pool_stride": 1}
"""Settings that fits with the same sums may differ in beside those, as they stand in the key of the sums."""


@dataclass(frozen=True)
class Fit:
    """A fit of the first `n_train` images of `data` (0: all), compressed once more at `quality` (0: as they are).

    `classes`: only images of so many classes, the first (0: all).
    """

    data: str
    n_train: int
    settings: Configuration
    quality: int = 0
    classes: int = 0

    @property
    def key(self) -> str:
        """Hash of all that its sums depend on, and how they are pooled."""
        return self._key(SHARED)

    @property
    def sums(self) -> str:
        """Hash of all that its sums depend on."""
        return self._key({**SHARED, **SOLVED})

    def _key(self, changes: dict[str, Any]) -> str:
        settings = self.settings.replace(**changes)
        some = [self.classes] if self.classes else []
        told = json.dumps([self.data, self.n_train, settings.to_dict(), self.quality, *some], sort_keys=True)
        return hashlib.blake2b(told.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Part:
    """Components `drop` to `drop + n_components` of a fit (0 components: all there are), as `solve` makes them."""

    fit: Fit
    n_components: int
    drop: int = 0
    solve: str = "spectral"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    parts : of which the representation is made, side by side. paper : percent right there, None where nothing is printed.
    vote, k, temperature : of the neighbours. remark : how our experiment differs from the paper's. elsewhere : the command that
    measures it, where that is another one. judge : "test" images, or "held out" ones, the last of the training group, for
    choices. mirrored : whether mirrored training images are learnt from too, beside the others. leading, whiten : directions
    in which is compared, 0: as the representation is. varied : fields that its row is about, which no run changes.
    """

    table: str
    row: str
    column: str
    parts: tuple[Part, ...]
    paper: float | None = None
    classifier: str = "knn"
    vote: str = "exp"
    k: int = 30
    temperature: float = 0.03
    remark: str = ""
    elsewhere: str = ""
    judge: str = "test"
    mirrored: bool = False
    leading: int = 0
    whiten: float = Directions.whiten
    varied: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Hash of what the figure depends on, test images aside."""
        parts = [(one.fit.key, one.n_components, one.drop, one.solve) for one in self.parts]
        told: list[Any] = [
            parts,
            self.classifier,
            self.vote,
            self.judge,
            *(["mirrored"] if self.mirrored else []),
        ]
        if (self.k, self.temperature) != (Cell.k, Cell.temperature):
            told += [self.k, self.temperature]
        if self.leading:
            told += ["leading", self.leading, self.whiten]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Scale:
    """How much smaller than printed a run is to be: most training images, atoms and components; settings and votes on top."""

    train: int = 0
    dictionary: int = 0
    components: int = 0
    changes: tuple[tuple[str, Any], ...] = ()
    mirrored: bool = False
    k: int = 0
    temperature: float = 0.0
    leading: int = 0
    whiten: float = Directions.whiten

    def fit(self, fit: Fit) -> Fit:
        """Return the fit at this scale."""
        settings = fit.settings.replace(**dict(self.changes))
        if self.dictionary:
            settings = settings.replace(dictionary=min(settings.dictionary, self.dictionary))
        sizes = [size for size in (fit.n_train, self.train) if size]
        return replace(fit, settings=settings, n_train=min(sizes, default=0))

    def part(self, part: Part) -> Part:
        """Return the part at this scale: as many components as there are atoms at most."""
        fit = self.fit(part.fit)
        drop = dict(self.changes).get("drop", part.drop) if part.solve == "spectral" else part.drop
        wanted = part.n_components
        if self.components and part.solve != "codes":
            wanted = min(wanted or self.components, self.components)
        if wanted:
            drop = min(drop, max(0, fit.settings.dictionary - wanted))
            wanted = min(wanted, fit.settings.dictionary - drop)
        return replace(part, fit=fit, n_components=wanted, drop=drop)

    def cell(self, cell: Cell) -> Cell:
        """Return the cell at this scale."""
        changes: dict[str, Any] = {
            "mirrored": cell.mirrored or self.mirrored,
            "k": self.k or cell.k,
            "temperature": self.temperature or cell.temperature,
            "leading": self.leading or cell.leading,
            "whiten": self.whiten if self.leading else cell.whiten,
        }
        kept = {name: value for name, value in changes.items() if name not in cell.varied}
        return replace(cell, parts=tuple(map(self.part, cell.parts)), **kept)


def tables() -> dict[str, Callable[[], Iterator[Cell]]]:
    """Return the tables by name."""
    return {
        "1": _table_1,
        "2": _table_2,
        "3": lambda: _colours("3", "cifar10", published.TABLE_3),
        "4": lambda: _colours("4", "tiny", published.TABLE_4),
        "5": _table_5,
        "6": _table_6,
        "7": _table_7,
        "figure-6": _figure_6,
        "ablations": _ablations,
        "recipe": _recipe,
        "jpeg": _jpeg,
    }


COLOUR: Final = "cifar10-gq"
GREY: Final = "cifar10-gq-gray"


def _whole(fit: Fit) -> tuple[Part, ...]:
    """Return the part that a fit's own settings ask for."""
    return (Part(fit, fit.settings.n_components, fit.settings.drop),)


def _fit(name: str, data: str, n_train: int = 0, **changes: Any) -> Fit:
    if data == "tiny":
        changes.setdefault("resize", 32)
    return Fit(data, n_train, preset(name).replace(**changes))


def _atoms(column: str) -> int:
    return int(column.split()[-1].replace("K", "000"))


def _table_1() -> Iterator[Cell]:
    for (row, column), paper in published.TABLE_1.items():
        context = "whole" if row == "whole image" else 3
        glove = column.startswith("GloVe")
        atoms = min(_atoms(column), 65536)
        fit = _fit("mnist-vq", "mnist", context=context, dictionary=atoms)
        command = f"python -m benchmarks.words.mnist_glove --context {context}" if glove else ""
        yield Cell("1", row, column, _whole(fit), paper, elsewhere=command)


def _table_2() -> Iterator[Cell]:
    fit = _fit("mnist-vq", "mnist", dictionary=16384)
    for components, paper in published.TABLE_2.items():
        yield Cell("2", "k-NN", str(components), (Part(fit, components, fit.settings.drop),), paper)


def _colours(table: str, data: str, figures: dict[tuple[str, str], float]) -> Iterator[Cell]:
    remark = "Tiny ImageNet's first 100 classes at 32 pixels in CIFAR-100's place" if data == "tiny" else ""
    for (row, column), paper in figures.items():
        names = {"original": [COLOUR], "greyscale": [GREY]}.get(row, [COLOUR, GREY])
        changes: dict[str, Any] = {"dictionary": min(_atoms(column), 65536)}
        said = remark
        if column.startswith("VQ"):
            changes |= {
                "feature": "vq",
                "dictionary_method": "spherical",
                "dictionary_samples": 2000,
                "drop": 1,
            }
            said = f"{remark}; 65,536 atoms at most".removeprefix("; ")
        parts = tuple(part for name in names for part in _whole(_fit(name, data, **changes)))
        yield Cell(table, row, column, parts, paper, remark=said)


def _table_5() -> Iterator[Cell]:
    for context, paper in published.TABLE_5.items():
        # the mean stays that of the image: the paper varies what co-occurs
        changes: dict[str, Any] = {"context": "whole" if context == 32 else context, "mean_context": "whole"}
        yield Cell("5", "k-NN", str(context), _whole(_fit(COLOUR, "cifar10", **changes)), paper)


def _table_6() -> Iterator[Cell]:
    for count, paper in published.TABLE_6.items():
        fit = _fit(COLOUR, "cifar10", 0 if count == 50_000 else count)
        yield Cell("6", "GQ 8192", f"{count:,}", _whole(fit), paper)


def _table_7() -> Iterator[Cell]:
    fit = _fit(COLOUR, "cifar10")
    for components, papers in published.TABLE_7.items():
        drop = min(fit.settings.drop, fit.settings.dictionary - components)
        for row, classifier, paper in zip(("k-NN", "linear probe"), ("knn", "linear"), papers, strict=True):
            part = Part(fit, components, drop)
            yield Cell("7", row, str(components), (part,), paper, classifier)


def _figure_6() -> Iterator[Cell]:
    figures = published.FIGURE_6
    for atoms in (1024, 2048, 4096, 8192):
        fit = _fit(COLOUR, "cifar10", dictionary=atoms)
        rows = {
            "codes alone": (Part(fit, 0, 0, "codes"), figures["codes alone", 8192]),
            "whitened codes": (Part(fit, 0, 0, "whitened"), figures["whitened codes", 8192]),
            "spectral": (_whole(fit)[0], figures["spectral", 500]),
        }
        for row, (part, paper) in rows.items():
            yield Cell("figure-6", row, f"K = {atoms:,}", (part,), paper if atoms == 8192 else None)
    fit = _fit(COLOUR, "cifar10")
    for components in (50, 110, 210, 350, 500, 800, 1600, 3200, 8192):
        column = f"{components:,} components"
        spectral = published.TABLE_7[components][0]
        drop = min(fit.settings.drop, fit.settings.dictionary - components)
        yield Cell("figure-6", "spectral", column, (Part(fit, components, drop),), spectral)
        printed = figures.get(("PCA", components))
        yield Cell("figure-6", "PCA, whitened", column, (Part(fit, components, 0, "pca-whitened"),), printed)
        yield Cell("figure-6", "PCA", column, (Part(fit, components, 0, "pca"),))


SMALL: Final = 1000
"""Training images of experiments of our own."""
L1_ROW: Final = "codes of every third patch, 64 components"
OURS: Final = "a size of our own; the paper prints nothing"


def _varied(table: str, row: str, settings: list[dict[str, Any]], **base: Any) -> Iterator[Cell]:
    """Yield a cell for each of some settings, on 1,000 images at K = 2,048; choices are judged by held-out images."""
    for changes in settings:
        column = ", ".join(f"{key} = {value}" for key, value in changes.items())
        fit = _fit(COLOUR, "cifar10", SMALL, **{"dictionary": 2048, **base, **changes})
        judge = "held out" if table == "recipe" else "test"
        yield Cell(table, row, column, _whole(fit), remark=OURS, judge=judge)


def _ablations() -> Iterator[Cell]:
    """Means, orders and codes; what replaces the embedding is Figure 6."""
    yield from _varied(
        "ablations", "mean", [{"mean": one} for one in ("context", "patch", "channel", "global")]
    )
    yield from _varied("ablations", "order", [{"context": "whole", "order": one} for one in (1, 2)])
    yield from _varied("ablations", "order", [{"context": 6, "order": one} for one in (1, 2)], mean="channel")
    vq = {"dictionary_method": "spherical", "dictionary_samples": 2000, "drop": 1}
    for colour, name in (("colour", COLOUR), ("greyscale", GREY)):
        for feature in ("gq", "vq"):
            fit = _fit(
                name,
                "cifar10",
                SMALL,
                dictionary=2048,
                **({"feature": "vq", **vq} if feature == "vq" else {}),
            )
            yield Cell("ablations", f"codes, {colour}", feature, _whole(fit), remark=OURS)

    command = "python -m benchmarks.sparse.cifar --data cifar10_jpeg.h5 --train 1000 --test 1000 --units 400"
    for feature in ("l1", "gq"):
        yield Cell("ablations", L1_ROW, feature, (), remark=OURS, elsewhere=command)


def _recipe() -> Iterator[Cell]:
    """Choices that the paper leaves open, one at a time, around the preset."""
    choices: dict[str, tuple[Any, ...]] = {
        "mean": ("context", "level", "patch", "channel"),
        "ridge": (1e-4, 1e-3, 3e-3, 1e-2, 1e-1),
        "threshold": (0.2, 0.25, 0.3, 0.35),
        "dictionary_method": ("random", "diverse", "spherical"),
        "zero_code": ("leave_out", "activate_best"),
        "null_tolerance": (None, 1e-5, 1e-4, 1e-3),
        "drop": (0, 8, 16, 24, 32),
        "n_components": (256, 384, 512),
    }
    for key, values in choices.items():
        for value in values:
            changes: dict[str, Any] = {key: value}
            if value == "diverse":
                changes["dictionary_cosine"] = 0.5
            yield from _varied("recipe", key, [changes])
    for vote in ("exp", "linear", "hard"):
        fit = _fit(COLOUR, "cifar10", SMALL, dictionary=2048)
        yield Cell("recipe", "vote", vote, _whole(fit), vote=vote, remark=OURS, judge="held out")

    for mirrored in (False, True):
        fit = _fit(COLOUR, "cifar10", SMALL, dictionary=2048)
        column = "mirrored too" if mirrored else "as they are"
        yield Cell(
            "recipe",
            "images that vote",
            column,
            _whole(fit),
            remark=OURS,
            judge="held out",
            mirrored=mirrored,
            varied=("mirrored",),
        )
    for k, temperature in ((30, 0.03), (30, 0.06), (50, 0.03), (50, 0.06), (50, 0.1), (100, 0.06)):
        yield Cell(
            "recipe",
            "neighbours, temperature",
            f"{k}, {temperature}",
            _whole(_fit(COLOUR, "cifar10", SMALL, dictionary=2048)),
            remark=OURS,
            judge="held out",
            mirrored=True,
            k=k,
            temperature=temperature,
            varied=("mirrored", "k", "temperature"),
        )


def _jpeg() -> Iterator[Cell]:
    """What compression costs: the copy compressed once more, and small images of Tiny ImageNet at several qualities.

    The copy of CIFAR-10 has been compressed at quality 75, colours at half resolution, by its tables: once more at 75 changes
    little. Tiny ImageNet's images, so compressed at 64 x 64, are scaled to 32 x 32 first, which leaves little of that; ten of its
    classes have enough images each for a figure like CIFAR-10's.
    """
    for data, classes, atoms, qualities in (
        ("cifar10", 0, 2048, (0, 95, 75, 50)),
        ("tiny", 0, 2048, (0, 95, 85, 75, 50)),
        ("tiny", 10, 2048, (0, 95, 75, 50)),
        ("tiny", 10, 8192, (0, 75)),
    ):
        for quality in qualities:
            n_train = 3000 if classes else SMALL
            fit = replace(_fit(COLOUR, data, n_train, dictionary=atoms), quality=quality, classes=classes)
            column = f"quality {quality}" if quality else "as it is"
            judge = "held out" if classes else "test"
            row = f"{data}, {classes} classes" if classes else data
            row += "" if atoms == 2048 else f", K = {atoms:,}"
            yield Cell("jpeg", row, column, _whole(fit), remark=OURS, judge=judge)
