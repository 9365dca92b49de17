"""The cells of the published tables: which fit each needs, what is read from it, and what the paper has there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from replication.quality import published
from smtdist.configuration import LATER as LATER_SETTINGS
from smtdist.configuration import Configuration, preset
from smtdist.evaluate.run import Directions

SHARED: Final = {
    **{"n_components": 1, "drop": 0, "pool_size": 1, "pool_stride": 1},
    **{"neighbours": 1, "temperature": 1.0, "vote": "exp", "mirrored_votes": False},
}
"""Settings that readings of one fit may differ in, as they stand in its key."""
SOLVED: Final = {"null_tolerance": None, "moment": "second"}
"""Settings that fits with the same sums may differ in beside those, as they stand in the key of the sums."""
LATER: Final = {"dictionary_n_init": 1, **LATER_SETTINGS}
"""Settings that came when cells were kept already: where they have these values, keys are as before."""
FILES: Final = {
    "mnist": "mnist.h5",
    "cifar10": "cifar10_lossless.h5",
    "cifar10-jpeg": "cifar10_jpeg.h5",
    "tiny": "tiny_imagenet_100_jpeg.h5",
}
"""Where the images of a data set lie."""
TEST_FILES: Final = {"cifar10": "cifar10_test_lossless.h5"}
"""Where its test images lie, if that is another file."""
SEEN: Final = {"cifar10": 1000}
"""The first so many test images judged earlier figures; the others judge nothing but the final ones."""
IMAGES: Final = {"mnist": 60_000, "cifar10": 50_000, "cifar10-jpeg": 50_000, "tiny": 50_000}
"""Training images of a data set."""
TEST: Final = "test"
BATCH_5: Final = "batch-5"
HELD_OUT: Final = "held out"
JUDGES: Final = {
    TEST: "test images",
    BATCH_5: "the last fifth of the training images",
    HELD_OUT: "the last training images before the last fifth",
}
"""What cells are judged by. Choices are made by images that no table is judged by."""


def before_batch_5(images: int) -> int:
    """Return how many of the training images are not in the last fifth: CIFAR-10's batches 1 to 4."""
    return images * 4 // 5


@dataclass(frozen=True)
class Votes:
    """How neighbours vote: so many of them, at a temperature, mirrored images among them or not."""

    k: int
    temperature: float
    mirrored: bool

    @classmethod
    def of(cls, settings: Configuration) -> Votes:
        """Return those that a preset brings."""
        return cls(settings.n_neighbors, settings.temperature, settings.mirrored_votes)


_PRINTED: Final = Votes.of(preset("paper-cifar10-gq"))
VOTES: Final = {
    "paper": _PRINTED,
    "flipped": replace(_PRINTED, mirrored=True),
    "ours": Votes.of(preset("cifar10-gq")),
}
"""Votes by name: as SMT 2023 prints them; the same where its training set, "the original version and the horizontally flipped
version", is what votes too; and as they were chosen here."""
CALLED: Final = {
    "paper": "the paper's votes",
    "flipped": "the paper's votes, flipped images among them",
    "ours": "our votes",
}
"""What texts call them."""
ROWS_COMPETE: Final = ("3", "4", "figure-6")
"""Tables whose rows are compared with each other; in others the columns are."""


@dataclass(frozen=True)
class Fit:
    """A fit of the first `n_train` images of `data` (0: all), compressed as JPEG at `quality` (0: as they are)."""

    data: str
    n_train: int
    settings: Configuration
    quality: int = 0

    @property
    def key(self) -> str:
        """Hash of all that its components depend on; the file of the images is part of it."""
        return self._key(SHARED)

    @property
    def sums(self) -> str:
        """Hash of all that its sums depend on."""
        return self._key({**SHARED, **SOLVED})

    def _key(self, changes: dict[str, Any]) -> str:
        settings = self.settings.replace(**changes).to_dict()
        told = {
            name: value for name, value in settings.items() if name not in LATER or value != LATER[name]
        }
        return _hash([FILES[self.data], self.n_train, told, self.quality])


@dataclass(frozen=True)
class Part:
    """Components `drop` to `drop + n_components` of a fit (0 components: all there are), as `solve` makes them.

    They are pooled as the fit's settings say. ridge : added to V, as a share of its mean diagonal.
    """

    fit: Fit
    n_components: int
    drop: int = 0
    solve: str = "spectral"
    ridge: float = 0.0

    @property
    def is_spectral(self) -> bool:
        """Whether its components are those of the transform."""
        return self.solve in ("spectral", "pooled first")

    @property
    def pooling(self) -> tuple[int, int]:
        """Side of a window and step to the next, in positions."""
        size, step = self.fit.settings.pool_size, self.fit.settings.pool_stride
        assert size is not None  # presets name their windows
        assert step is not None
        return size, step

    @property
    def asked_components(self) -> int:
        """Components that are asked for; a fit may have fewer that are not null."""
        return self.n_components or self.fit.settings.n_atoms


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    parts : of which the representation is made, side by side. paper : percent right there, None where nothing is printed.
    vote, k, temperature : of the neighbours. remark : how our experiment differs from the paper's. elsewhere : the command that
    measures it, where that is another one. judge : by which images, of `JUDGES`; choices are made by those that are held out.
    mirrored : whether mirrored training images vote, or a probe learns from them, beside the others. leading, whiten :
    directions in which is compared, 0: as the representation is. varied : fields that its row is about, which no run changes.
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
    judge: str = TEST
    mirrored: bool = False
    leading: int = 0
    whiten: float = Directions.whiten
    varied: tuple[str, ...] = ()

    @property
    def representation(self) -> str:
        """Hash of what its rows depend on: cells that differ in their votes alone share them."""
        parts = [
            (
                one.fit.key,
                one.n_components,
                one.drop,
                one.solve,
                *one.pooling,
                *([one.ridge] if one.ridge else []),
            )
            for one in self.parts
        ]
        # directions are those of the images that vote
        leading = [self.leading, self.whiten, self.mirrored] if self.leading else []
        return _hash([parts, self.judge, *leading])

    @property
    def key(self) -> str:
        """Hash of what the figure depends on, test images aside."""
        votes = [self.vote, self.k, self.temperature, self.mirrored]
        return _hash([self.representation, self.classifier, *votes])

    @property
    def names(self) -> tuple[str, str]:
        """What a cell has in common with those it competes with, and what sets it apart."""
        if self.table == "recipe":  # all choices are compared with the preset
            return "choices", self.column if "=" in self.column else f"{self.row}: {self.column}"
        return (self.column, self.row) if self.table in ROWS_COMPETE else (self.row, self.column)


@dataclass(frozen=True)
class Scale:
    """How much smaller than printed a run is to be: most training images, atoms and components; settings and votes on top.

    judge : in place of the test images.
    """

    train: int = 0
    dictionary: int = 0
    components: int = 0
    changes: tuple[tuple[str, Any], ...] = ()
    mirrored: bool = False
    k: int = 0
    temperature: float = 0.0
    leading: int = 0
    whiten: float = Directions.whiten
    judge: str = TEST

    def fit(self, fit: Fit) -> Fit:
        """Return the fit at this scale."""
        settings = fit.settings.replace(**dict(self.changes))
        if self.dictionary:
            settings = settings.replace(dictionary=min(settings.n_atoms, self.dictionary))
        # what judges must not be learnt from
        most = before_batch_5(IMAGES[fit.data]) if self.judge == BATCH_5 else 0
        sizes = [size for size in (fit.n_train, self.train, most) if size]
        return replace(fit, settings=settings, n_train=min(sizes, default=0))

    def part(self, part: Part) -> Part:
        """Return the part at this scale: as many components as there are atoms at most."""
        fit, wanted, drop = self.fit(part.fit), part.n_components, part.drop
        if part.is_spectral:
            drop = dict(self.changes).get("drop_components", drop)
            if wanted == part.fit.settings.n_components:  # and not what a column of a table says
                wanted = fit.settings.n_components
        if self.components and part.solve != "codes":
            wanted = min(wanted or self.components, self.components)
        if wanted:
            drop = min(drop, max(0, fit.settings.n_atoms - wanted))
            wanted = min(wanted, fit.settings.n_atoms - drop)
        return replace(part, fit=fit, n_components=wanted, drop=drop)

    def cell(self, cell: Cell) -> Cell:
        """Return the cell at this scale."""
        changes: dict[str, Any] = {
            "judge": self.judge if cell.judge == TEST else cell.judge,
            "leading": self.leading or cell.leading,
            "whiten": self.whiten if self.leading else cell.whiten,
            "mirrored": cell.mirrored or self.mirrored,
        }
        if cell.classifier == "knn":  # a probe knows no neighbours
            changes |= {"k": self.k or cell.k, "temperature": self.temperature or cell.temperature}
        kept = {name: value for name, value in changes.items() if name not in cell.varied}
        return replace(cell, parts=tuple(map(self.part, cell.parts)), **kept)


def _hash(told: Any) -> str:
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=6).hexdigest()


RECIPES: Final = {"ours": "", "paper": "paper-"}
"""What stands before the name of presets: nothing for ours, and for the settings as SMT 2023 prints them."""
COLOUR: Final = "cifar10-gq"
GREY: Final = "cifar10-gq-gray"


def tables(recipe: str = "ours") -> dict[str, Callable[[], Iterator[Cell]]]:
    """Return the tables by name, their fits with the settings of a recipe."""
    make = _Tables(RECIPES[recipe])
    return {
        "1": make.table_1,
        "2": make.table_2,
        "3": lambda: make.colours("3", "cifar10", published.TABLE_3),
        "4": lambda: make.colours("4", "tiny", published.TABLE_4),
        "5": make.table_5,
        "6": make.table_6,
        "7": make.table_7,
        "figure-6": make.figure_6,
        "ablations": make.ablations,
        "recipe": make.recipe,
        "jpeg": make.jpeg,
    }


def deviation(printed: Cell, own: dict[str, Any]) -> float | None:
    """Return by how many points a figure of ours differs from the paper's; None where it is not of the same experiment.

    It is the same where data, training images, atoms, components and votes are those of the printed cell, and test images
    judge.
    """
    if printed.paper is None or printed.remark or own.get("leading") or own.get("judge", TEST) != TEST:
        return None
    first = printed.parts[0].fit
    asked = {
        "data": first.data,
        "n_train": first.n_train or IMAGES[first.data],
        "dictionary": first.settings.n_atoms,
        "asked_components": [part.asked_components for part in printed.parts],
        "vote": printed.vote,
        "k": printed.k,
        "temperature": printed.temperature,
        "mirrored": printed.mirrored,
    }
    if any(own.get(name, value) != value for name, value in asked.items()):
        return None
    return float(round(100 * own["top1"] - printed.paper, 2))


def _whole(fit: Fit) -> tuple[Part, ...]:
    """Return the part that a fit's own settings ask for."""
    return (Part(fit, fit.settings.n_components, fit.settings.drop_components),)


def _spectral(fit: Fit, components: int) -> Part:
    """Return a part of so many components after those that the fit's settings drop, as far as there are enough.

    All components are those of whitened PCA, and whitened codes, up to a rotation (P V Pᵀ = I), which neither a cosine nor the
    penalty of a linear probe sees.
    """
    atoms = fit.settings.n_atoms
    if components >= atoms:
        return Part(fit, atoms, 0, "pca-whitened")
    return Part(fit, components, min(fit.settings.drop_components, atoms - components))


def _atoms(column: str) -> int:
    return int(column.split()[-1].replace("K", "000"))


OWN_SIZE: Final = 8000
"""Training images of experiments of our own."""
L1_ROW: Final = "codes of every third patch, 64 components"
OURS: Final = "a size of our own; the paper prints nothing"
PROBE: Final = "linear probe"
PRESET: Final = ("preset", "as it is")
"""Row and column of the cell that choices are compared with."""
VQ: Final = {"feature": "vq", "dictionary_method": "spherical", "dictionary_samples": 2000, "drop": 1}


@dataclass(frozen=True)
class _Tables:
    """The tables, with `prefix` before the names of presets."""

    prefix: str

    def fit(self, name: str, data: str, n_train: int = 0, **changes: Any) -> Fit:
        if data == "tiny":
            changes.setdefault("resize", 32)
        known = preset(f"{self.prefix}{name}")
        return Fit(data, n_train, known.replace(**changes))

    def table_1(self) -> Iterator[Cell]:
        for (row, column), paper in published.TABLE_1.items():
            context = "whole" if row == "whole image" else 3
            glove = column.startswith("GloVe")
            atoms = min(_atoms(column), 65536)
            fit = self.fit("mnist-vq", "mnist", context=context, dictionary=atoms)
            command = f"python -m replication.words.mnist_glove --context {context}" if glove else ""
            yield Cell("1", row, column, _whole(fit), paper, elsewhere=command)

    def table_2(self) -> Iterator[Cell]:
        fit = self.fit("mnist-vq", "mnist", dictionary=16384)
        for components, paper in published.TABLE_2.items():
            yield Cell(
                "2", "k-NN", str(components), (Part(fit, components, fit.settings.drop_components),), paper
            )

    def colours(self, table: str, data: str, figures: dict[tuple[str, str], float]) -> Iterator[Cell]:
        remark = (
            "Tiny ImageNet's first 100 classes at 32 pixels in CIFAR-100's place" if data == "tiny" else ""
        )
        for (row, column), paper in figures.items():
            names = {"original": [COLOUR], "greyscale": [GREY]}.get(row, [COLOUR, GREY])
            changes: dict[str, Any] = {"dictionary": min(_atoms(column), 65536)}
            said = remark
            if column.startswith("VQ"):
                changes |= VQ
                said = f"{remark}; 65,536 atoms at most".removeprefix("; ")
            parts = tuple(part for name in names for part in _whole(self.fit(name, data, **changes)))
            yield Cell(table, row, column, parts, paper, remark=said)

    def table_5(self) -> Iterator[Cell]:
        for context, paper in published.TABLE_5.items():
            # the mean stays that of the image: the paper varies what co-occurs
            changes: dict[str, Any] = {
                "context": "whole" if context == 32 else context,
                "mean_context": "whole",
            }
            yield Cell("5", "k-NN", str(context), _whole(self.fit(COLOUR, "cifar10", **changes)), paper)

    def table_6(self) -> Iterator[Cell]:
        for count, paper in published.TABLE_6.items():
            fit = self.fit(COLOUR, "cifar10", 0 if count == 50_000 else count)
            yield Cell("6", "GQ 8192", f"{count:,}", _whole(fit), paper)

    def table_7(self) -> Iterator[Cell]:
        fit = self.fit(COLOUR, "cifar10")
        for components, papers in published.TABLE_7.items():
            for row, classifier, paper in zip(("k-NN", PROBE), ("knn", "linear"), papers, strict=True):
                yield Cell("7", row, str(components), (_spectral(fit, components),), paper, classifier)

    def figure_6(self) -> Iterator[Cell]:
        figures = published.FIGURE_6
        for atoms in (1024, 2048, 4096, 8192):
            fit = self.fit(COLOUR, "cifar10", dictionary=atoms)
            rows = {
                "codes alone": (Part(fit, 0, 0, "codes"), figures["codes alone", 8192]),
                "whitened codes": (_spectral(fit, atoms), figures["whitened codes", 8192]),
                "spectral": (_whole(fit)[0], figures["spectral", 500]),
            }
            for row, (part, paper) in rows.items():
                yield Cell("figure-6", row, f"K = {atoms:,}", (part,), paper if atoms == 8192 else None)
        fit = self.fit(COLOUR, "cifar10")
        for components in (50, 110, 210, 350, 500, 800, 1600, 3200, 8192):
            column = f"{components:,} components"
            spectral = published.TABLE_7[components][0]
            yield Cell("figure-6", "spectral", column, (_spectral(fit, components),), spectral)
            printed = figures.get(("PCA", components))
            whitened = (Part(fit, components, 0, "pca-whitened"),)
            yield Cell("figure-6", "PCA, whitened", column, whitened, printed)
            yield Cell("figure-6", "PCA", column, (Part(fit, components, 0, "pca"),))

    def varied(self, table: str, row: str, settings: list[dict[str, Any]], **base: Any) -> Iterator[Cell]:
        """Yield a cell for each of some settings; choices are judged by images that are held out."""
        for changes in settings:
            column = ", ".join(f"{key} = {value}" for key, value in changes.items())
            fit = self.fit(COLOUR, "cifar10", OWN_SIZE, **base, **changes)
            judge = HELD_OUT if table == "recipe" else TEST
            yield Cell(table, row, column, _whole(fit), remark=OURS, judge=judge)

    def ablations(self) -> Iterator[Cell]:
        """Means, orders and codes; what replaces the embedding is Figure 6."""
        means = [{"mean": one} for one in ("context", "patch", "channel", "global")]
        yield from self.varied("ablations", "mean", means)
        for context, base in (("whole", {}), (6, {"mean": "channel"})):
            orders: list[dict[str, Any]] = [{"context": context, "order": one} for one in (1, 2)]
            yield from self.varied("ablations", "order", orders, **base)
        for colour, name in (("colour", COLOUR), ("greyscale", GREY)):
            for feature, changes in (("gq", {}), ("vq", VQ)):
                fit = self.fit(name, "cifar10", OWN_SIZE, **changes)
                yield Cell("ablations", f"codes, {colour}", feature, _whole(fit), remark=OURS)

        command = f"python -m replication.sparse.cifar --data {FILES['cifar10']} --train 1000 --test 1000 --units 400"
        for feature in ("l1", "gq"):
            yield Cell("ablations", L1_ROW, feature, (), remark=OURS, elsewhere=command)

    def recipe(self) -> Iterator[Cell]:
        """Choices that the paper leaves open, one at a time, around the preset."""
        whole = _whole(self.fit(COLOUR, "cifar10", OWN_SIZE))
        yield Cell("recipe", *PRESET, whole, remark=OURS, judge=HELD_OUT)
        choices: dict[str, tuple[Any, ...]] = {
            "mean": ("context", "level", "patch", "channel"),
            "ridge": (1e-4, 1e-3, 3e-3, 1e-2, 1e-1),
            "threshold": (0.2, 0.25, 0.3, 0.35),
            "zero_code": ("keep", "leave_out", "activate_best"),
            "null_tolerance": (None, 1e-5, 1e-4, 1e-3),
            "drop": (0, 8, 16, 24, 32, 48, 64),
            "n_components": (192, 256, 384, 512),
        }
        for key, values in choices.items():
            yield from self.varied("recipe", key, [{key: value} for value in values])
        own: dict[str, Any] = {"whitening_covariance": "image"}
        whitenings: list[dict[str, Any]] = [
            {"whitening_covariance": "data"},
            *(own | {"ridge": ridge} for ridge in (3e-4, 1e-3, 3e-3)),
            *(own | {"mean": "context", "drop": drop} for drop in (16, 32)),
        ]
        yield from self.varied("recipe", "whitening", whitenings)
        methods: list[dict[str, Any]] = [
            {"dictionary_method": "random"},
            {"dictionary_method": "diverse", "dictionary_cosine": 0.38},
            {"dictionary_method": "diverse", "dictionary_cosine": 0.5},
            {"dictionary_method": "spherical"},
        ]
        yield from self.varied("recipe", "dictionary_method", methods)
        # 5 and 3 is the public notebook's step, which it takes on to 3 x 3: of 27 x 27 positions, windows of 9
        windows = [{"pool_size": size, "pool_stride": step} for size, step in ((4, 2), (5, 3), (9, 9))]
        yield from self.varied("recipe", "pooling", windows)
        for ridge in (1e-4, 1e-3, 1e-2, 1e-1):
            parts = tuple(replace(part, ridge=ridge) for part in whole)
            yield Cell("recipe", "ridge of the solve", f"{ridge:g}", parts, remark=OURS, judge=HELD_OUT)
        parts = tuple(replace(part, solve="pooled first") for part in whole)
        yield Cell("recipe", "normalised", "after pooling alone", parts, remark=OURS, judge=HELD_OUT)
        for vote in ("exp", "linear", "hard"):
            yield Cell("recipe", "vote", vote, whole, vote=vote, remark=OURS, judge=HELD_OUT)

        for mirrored in (False, True):
            yield Cell(
                "recipe",
                "images that vote",
                "mirrored too" if mirrored else "as they are",
                whole,
                remark=OURS,
                judge=HELD_OUT,
                mirrored=mirrored,
                varied=("mirrored",),
            )
        for k, temperature in ((30, 0.03), (30, 0.06), (50, 0.03), (50, 0.06), (50, 0.1), (100, 0.06)):
            yield Cell(
                "recipe",
                "neighbours, temperature",
                f"{k}, {temperature}",
                whole,
                remark=OURS,
                judge=HELD_OUT,
                mirrored=True,
                k=k,
                temperature=temperature,
                varied=("mirrored", "k", "temperature"),
            )

    def jpeg(self) -> Iterator[Cell]:
        """What compression costs: the same images at several qualities, and the copy that was compressed before.

        The copy has been compressed at quality 75, colours at half resolution, and its images lie in another order: the
        same number of them are not the same ones.
        """
        for quality in (0, 95, 75, 50):
            fit = replace(self.fit(COLOUR, "cifar10", OWN_SIZE), quality=quality)
            column = f"JPEG of quality {quality}" if quality else "lossless"
            yield Cell("jpeg", "the same images", column, _whole(fit), remark=OURS)
        copy = self.fit(COLOUR, "cifar10-jpeg", OWN_SIZE)
        yield Cell("jpeg", "the JPEG copy", "as it is", _whole(copy), remark=OURS)
