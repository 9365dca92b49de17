"""One small case, or more, of every class that is a statistic: what the laws are tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from drawing import small_images

from smtdist.concepts.iteration import Annealing, Projection
from smtdist.concepts.scores import TableSums
from smtdist.configuration import Configuration
from smtdist.engine.unchanged import Again
from smtdist.evaluate.cosine_rows import Comparer, Scale
from smtdist.evaluate.landmarks import FeatureMoments, LandmarkFeatures
from smtdist.evaluate.ridge_head import LeftOut
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.contrast import zca
from smtdist.kernels.feature_maps import random_features
from smtdist.kernels.features import (
    Features,
    Interpolation,
    Landmarks,
    PositiveCodes,
    Pursuit,
    Quadratic,
    RadialBasis,
    RandomFourier,
    Threshold,
)
from smtdist.kernels.gram import Kernel
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.products import each_tile
from smtdist.kernels.spike_slab import Schedule, SpikeSlab
from smtdist.kernels.tokens import Normalisation
from smtdist.kernels.types import Geometry, Sampling
from smtdist.kernels.whitening import atoms_to_grid
from smtdist.models.functional.fit import SparseCoder
from smtdist.models.functional.fit import Whitening as RowWhitening
from smtdist.models.model import Whitening, make_encoder, unwhitened, whitened
from smtdist.models.readout import Block, Columns
from smtdist.solve.ridge import Ridge
from smtdist.statistics import contrast, sequences, sums, word_pairs
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.candidates import Candidates, Centroids
from smtdist.statistics.contrast import AutoencoderGradient, SpectralGradient
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment, covariance
from smtdist.statistics.l1_codes import L1Sums, OmpSums, SpikeSlabSums
from smtdist.statistics.labelled import LabelledSums, LargestFeature
from smtdist.statistics.operators import Listed, Temporal, Whole, Window
from smtdist.statistics.patch_rows import PatchRows, RowMoments, RowSample
from smtdist.statistics.rows import RowDraw, TripletMaker
from smtdist.statistics.sites import DrawnPatches, Neighbourhoods, Sequences
from smtdist.statistics.together import NestedSums, Together
from smtdist.statistics.values import ValueSums
from smtdist.statistics.values import finish as finish_values
from smtdist.statistics.word_pairs import TokenCounts, most_frequent

SAMPLES = 7
"""Of a law: so many that the fixed tree over one sample a leaf is uneven."""


@dataclass(frozen=True)
class Case:
    """A statistic and samples for it.

    samples : makes (n, ...) of a seed and n. finish : what a family makes of a state, where it has a function for that; the
    state is its own. additive : whether what `finish` returns adds and subtracts, bit for bit. drawn : arrays of an exact
    state that are samples themselves, and may be floats. tolerance : of sums of floats, as a share of the largest entry, for
    samples that are cut into other batches. counters : bytes of a state that `state_bytes` leaves out. bulk : makes one so large
    that its arrays outweigh all else, with samples for it, to measure memory; None where tests/kernels/test_memory.py does.
    """

    statistic: Statistic
    samples: Callable[[int, int], np.ndarray]
    finish: Callable[[State], Any] | None = None
    additive: bool = False
    drawn: tuple[str, ...] = ()
    tolerance: float = 1e-6
    counters: int = 100
    bulk: Callable[[], tuple[Statistic, np.ndarray]] | None = None


def arrays_of(value: Any, name: str = "") -> dict[str, np.ndarray]:
    """Name all arrays and numbers of a state, or of what it is finished to; where it came from is left out."""
    if is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in fields(value) if one.name != "origin"}
    if isinstance(value, tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        return {
            key: array for at, one in value.items() for key, array in arrays_of(one, f"{name}.{at}").items()
        }
    return {} if value is None else {name: np.asarray(value)}


# Images of small grey levels, with flat parts, and binary codes of their patches.

GEOMETRY = Geometry(7, 6, 1, 3)
DRAW = np.random.default_rng(5)
ATOMS = atoms_to_grid(DRAW.normal(size=(12, 9)))
PLAIN = Configuration(patch=3, flip=True)


def images(seed, n):
    return small_images(seed, n, 7, 6)


def unwhitened_of(settings):
    return unwhitened(settings, GEOMETRY, pixel_scale(np.uint8, settings.pixel_range))


def whitener_of(settings):
    return whitened(unwhitened_of(settings), Whitening(np.eye(9), np.eye(9), np.eye(9), None))


WHITENER = whitener_of(PLAIN)
FEW = replace(WHITENER, sampling=Sampling(2, 3, 7))
VQ = make_encoder(PLAIN.replace(feature="vq"), WHITENER, ATOMS)
SPARES = Candidates(WHITENER, True, 5, 3)


def code_sums(atoms=ATOMS, whitener=None, **changes):
    base = {"patch": 3, "threshold": 0.4, "dictionary": 12, "flip": True}
    settings = Configuration(**{**base, **changes})
    encoder = make_encoder(settings, whitener or whitener_of(settings), atoms)
    return CodeSums(encoder, settings.context_size, settings.difference_order, settings.augment_flip, 100)


def codes(**changes):
    one = code_sums(**changes)
    return Case(one, images, lambda state: sums.finish(one, state), additive=True)


def moment(mean, **changes):
    whitener = unwhitened_of(PLAIN.replace(mean=mean))
    whitener = replace(whitener, **changes)
    return Case(PatchMoment(whitener, True), images, lambda state: covariance(state, whitener))


BESIDE = whitener_of(PLAIN.replace(mean="patch"))


def nested_of(atoms):
    """Return sums whose codes follow from the first part's: another threshold, the first of its atoms, second order."""
    few, some = (atoms[: len(atoms) * share // 12] for share in (5, 7))
    parts = {
        "low": code_sums(atoms, BESIDE, threshold=0.3),
        "high": code_sums(atoms, BESIDE, threshold=0.6, zero_code="activate_best"),
        "few": code_sums(few, BESIDE, threshold=0.3, context=1),
        "second": code_sums(some, BESIDE, threshold=0.3, context=2, order=2),
    }
    return NestedSums(tuple(parts.items()))


def many_atoms():
    return nested_of(atoms_to_grid(np.random.default_rng(6).normal(size=(360, 9)))), images(4, 60)


def sketch_of_many():
    return Candidates(WHITENER, True, 900, 1), images(4, 60)


NESTED = nested_of(ATOMS)
JOINT = Together(
    (
        ("moment", PatchMoment(unwhitened_of(PLAIN.replace(mean="patch")), True)),
        ("sketch", Candidates(WHITENER, True, 9, 1)),
        ("codes", NESTED),
    )
)
WITH_FLOATS = Together(
    (
        ("moment", PatchMoment(unwhitened_of(PLAIN), True)),
        ("rows", RowMoments(PatchRows((7, 6, 1), 3, 4, 0.01, 2))),
    )
)
IMAGES = {
    "again": Case(Again(), images),
    "moment": moment("context"),
    "moment-global": moment("global"),
    "moment-drawn": moment("context", sampling=Sampling(2, 3, 7)),
    "candidates": Case(Candidates(WHITENER, True, 9, 1), images, bulk=sketch_of_many),
    "candidates-stride": Case(Candidates(FEW, True, 9, 1), images),
    "centroids": Case(Centroids(VQ, True, SPARES), images),
    "centroids-drawn": Case(
        Centroids(replace(VQ, whitener=FEW), True, replace(SPARES, whitener=FEW)), images
    ),
    "gq-whole": codes(),
    "gq-whole-kept": codes(constant_patch="keep", zero_code="keep"),
    "gq-whole-complete": codes(constant_patch="activate_best", zero_code="activate_best"),
    "gq-window": codes(context=1),
    "gq-window-left-out": codes(context=1, zero_code="leave_out"),
    "gq-second-order": codes(context=2, order=2),
    "gq-whole-second-order": codes(order=2, zero_code="leave_out"),
    "gq-drawn": codes(positions=5),
    "gq-drawn-complete": codes(positions=5, constant_patch="activate_best", zero_code="activate_best"),
    "gq-window-drawn": codes(context=2, stride=2, positions=4, threshold=0.2),
    "gq-second-order-drawn": codes(context=2, order=2, positions=6),
    "gq-tile": Case(code_sums(context=1).tiled(3)[1], images),
    "vq-whole": codes(feature="vq"),
    "vq-whole-second-order": codes(feature="vq", order=2, min_contrast=20.0),
    "vq-window": codes(feature="vq", context=2),
    "vq-window-kept": codes(feature="vq", context=2, constant_patch="keep"),
    "vq-stride": codes(feature="vq", context=2, stride=2),
    "vq-drawn-second-order": codes(feature="vq", order=2, positions=4, min_contrast=20.0),
    "nested": Case(NESTED, images, counters=300, bulk=many_atoms),
    "together": Case(JOINT, images, counters=500),
    "together-floats": Case(WITH_FLOATS, images, counters=200),
}

# Patches of images as rows of numbers, and codes of them that are numbers.

PATCHES = PatchRows((7, 6, 1), 3, 4, 0.01, 2, np.full(9, 0.1), np.eye(9) + 0.01)


@dataclass(frozen=True, eq=False)
class Rectified(Features):
    """max(0, x Φᵀ - ½): the shortest code that a manifold transform takes."""

    atoms: np.ndarray
    sparse: bool

    @property
    def size(self):
        return len(self.atoms)

    def __call__(self, rows):
        codes = np.empty((len(rows), self.size), np.float32)

        def use(products, start, stop):
            codes[start:stop] = np.maximum(products - np.float32(0.5), 0)

        each_tile(rows, self.atoms.T, use)  # a row has its code alone
        return codes

    def few(self):
        return replace(self, atoms=self.atoms[:4])


def on_patches(make, units=300, **more):
    """Return a case of sums over patches with atoms, the bulky one with many of both."""

    def bulk():
        patches = PatchRows((20, 18, 1), 8, 20, 0.01, 2, np.zeros(64), np.eye(64))
        return make(patches, atoms_of(units, 64)), large_images()

    return Case(make(PATCHES, atoms_of(12, 9)), images, bulk=bulk, **more)


@cache
def large_images():
    return small_images(4, 50, 20, 18)


def atoms_of(units, inputs):
    atoms = np.random.default_rng(units).normal(size=(units, inputs)).astype(np.float32)
    return atoms / np.linalg.norm(atoms, axis=1, keepdims=True)


def codes_of(sparse, order=0):
    """Whole images, or windows with an order."""

    def make(patches, atoms):
        context = Window(patches.drawn, patches.grid[1], 2, order) if order else Whole()
        return ValueSums(DrawnPatches(patches), Rectified(atoms, sparse), context)

    return on_patches(make)


def l1(method, second):
    def make(patches, atoms):
        return L1Sums(patches, atoms, 0.2, True, method, 1e-4, 1, second)

    return on_patches(make, 150, tolerance=1e-4)


def slabs(schedule, second):
    def make(patches, atoms):
        units, inputs = atoms.shape
        start = np.zeros(units), np.ones(units), np.full(units, -1.0), np.full(inputs, 3.0)
        return SpikeSlabSums(patches, SpikeSlab(atoms, *start).astype(np.float32), schedule, 1, second)

    return on_patches(make, tolerance=1e-4)


def bare(patches):
    return replace(patches, mean=None, whiten=None)


ROWS = {
    "row-moments": on_patches(
        lambda patches, _: RowMoments(bare(patches)),
        finish=lambda state: zca(state["total"], state["moment"], int(state["n"])),
    ),
    "row-sample": on_patches(
        lambda patches, _: RowSample(patches, 9 if patches is PATCHES else 400, 2), drawn=("rows",)
    ),
    "float-codes-sparse": codes_of(True),
    "float-codes-dense": codes_of(False),
    "float-codes-flip": on_patches(
        lambda patches, atoms: ValueSums(
            DrawnPatches(replace(patches, flip=True)), Rectified(atoms, True), Whole()
        )
    ),
    "float-codes-window": codes_of(True, 1),
    "float-codes-window-second-order": codes_of(True, 2),
    "omp": on_patches(lambda patches, atoms: OmpSums(patches, atoms, 1)),
    "l1-gradient": l1("coordinate", False),
    "l1-closed": l1("fista", True),
    "spike-slab-gradient": slabs(Schedule(), False),
    "spike-slab-closed": slabs(Schedule.in_blocks(), True),
}

# Rows of numbers: contrast, gradients, draws, tables.


def numbers(seed, n, width=6):
    return np.random.default_rng(seed).normal(size=(n, 1, 1, width)).astype(np.float32)


def scores(seed, n, width=6):
    """Whole steps of a grid, as the concepts' scores are."""
    return np.rint(1000 * numbers(seed, n, width))


def labelled(seed, n, width=6):
    """Rows whose last number is one of three classes."""
    rows = numbers(seed, n, width + 1)
    rows[..., -1] = np.random.default_rng(seed).integers(0, 3, (n, 1, 1))
    return rows


def by_landmarks(size=4):
    """What turns rows of six numbers into landmark features."""
    layout = [[Columns(Block("embedding", (6,)), 0)]]
    rows = numbers(9, size).reshape(size, 6)
    return LandmarkFeatures.of(rows, layout, Comparer(((Scale(),),), 0.5))


def ridge_of(size):
    values, vectors = np.linalg.eigh(99 * np.cov(numbers(8, 99, size).reshape(99, size).T))
    return Ridge(values, vectors, weights(size, 3).astype(float), np.zeros(size), np.array([0, 0, 9.0]), 99)


def weights(*shape):
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def on_rows(make, size, many, rows=4096, width=6, **more):
    """Return a case of rows of numbers: `make` takes a size, of features, and how many samples negatives are drawn from."""
    return Case(
        make(size, 5),
        numbers,
        bulk=lambda: (make(many, 300), numbers(4, rows, width)),
        tolerance=1e-4,
        **more,
    )


def features_of(size, n_inputs=6):
    return random_features(Kernel(), "fourier", n_inputs, size, 0)


def triplets_of(pool):
    return TripletMaker(3, Augmentation(0.3), numbers(5, pool)[:, 0, 0], np.arange(pool))


def contrast_of(size, pool):
    return contrast.ContrastSums(features_of(size), triplets_of(pool))


def spectral(all_negatives):
    def make(size, pool):
        return SpectralGradient(features_of(size), triplets_of(pool), weights(size, 2), all_negatives)

    return on_rows(make, 10, 300)


def autoencoder(size, _):
    decode = random_features(Kernel("relu"), "relu", 2, size - 2, 1)
    parts = features_of(size), decode, weights(size, 2), weights(size - 2, 6)
    return AutoencoderGradient(*parts, Augmentation(0.2), 9)


def projection(annealing):
    """Return a case of candidates that are whole numbers, so that no sign hangs by a rounding."""

    def make(rank, width):
        return Projection(np.rint(100 * weights(rank, width)), rank, annealing)

    return Case(make(4, 3), scores, bulk=lambda: (make(32, 100), scores(4, 9000, 32)))


TABLES = {
    "row-draw": Case(
        RowDraw(4, 6, 1),
        numbers,
        drawn=("rows",),
        bulk=lambda: (RowDraw(300, 200, 1), numbers(4, 900, 200)),
    ),
    "labelled": Case(
        LabelledSums(6, 3), labelled, bulk=lambda: (LabelledSums(800, 3), labelled(4, 300, 800))
    ),
    "labelled-landmarks": Case(LabelledSums(4, 3, features=by_landmarks()), labelled),
    "feature-moments": Case(
        FeatureMoments(6), labelled, bulk=lambda: (FeatureMoments(9000), numbers(4, 300, 9001))
    ),
    "left-out": Case(
        LeftOut(ridge_of(6), (0.1, 1.0)),
        labelled,
        bulk=lambda: (LeftOut(ridge_of(300), (0.1, 1.0)), labelled(4, 900, 300)),
    ),
    "largest-feature": Case(
        LargestFeature(6, 3),
        labelled,
        drawn=("largest",),
        bulk=lambda: (LargestFeature(200, 3), labelled(4, 9000, 200)),
    ),
    "contrast": on_rows(contrast_of, 10, 600, rows=2000, finish=lambda state: contrast.finish(state, 10)),
    "contrast-triplets": on_rows(
        lambda size, _: contrast.ContrastSums(features_of(size, 2), TripletMaker(3)),
        10,
        300,
        finish=lambda state: contrast.finish(state, 10),
    ),
    "spectral": spectral(False),
    "spectral-all-negatives": spectral(True),
    "autoencoder": on_rows(autoencoder, 10, 300),
    "table": on_rows(lambda size, _: TableSums(np.linspace(-1, 1, size)), 6, 90, width=90),
    "projection": projection(None),
    "projection-annealed": projection(Annealing(1e5, 1, 2, 0)),
}

# Sequences in time, and points with their neighbours.

CODER = SparseCoder(
    atoms_of(12, 3).T.astype(float), 0.2, RowWhitening(np.zeros(3), np.eye(3) * 0.9, np.eye(3) / 0.9), 1e-5
)
BASIS = RadialBasis(DRAW.normal(size=(6, 3)), 1.0)


def clips(seed, n):
    return np.cumsum(np.random.default_rng(seed).normal(size=(n, 5, 3)), axis=1)


def neighbourhoods(seed, n):
    """Points of 3 numbers with 4 neighbours each, of which some weigh nothing."""
    rng = np.random.default_rng(seed)
    found = rng.uniform(-1, 1, (n, 5, 4))
    found[..., -1] = rng.choice([0.0, 0.25, 0.5], (n, 5))
    return found


def clip_sums(features, order):
    return valued(Sequences(3), features, Temporal(order), clips)


def valued(sites, features, context, samples):
    statistic = ValueSums(sites, features, context)
    return Case(statistic, samples, lambda state: finish_values(state, statistic), additive=True)


def point_sums(features, order, pairs=False):
    return valued(Neighbourhoods(3), features, Listed(order, pairs), neighbourhoods)


SEQUENCES = {
    "sequences": clip_sums(BASIS, 1),
    "sequences-second-order": clip_sums(CODER, 2),
    "frames": Case(sequences.FrameMoments(3), clips),
    "frames-through": Case(sequences.FrameMoments(12, CODER), clips, tolerance=1e-4),
    "dictionary": Case(sequences.DictionarySums(CODER), clips, tolerance=1e-4),
    "points": point_sums(BASIS, 1),
    "points-second-order": point_sums(RandomFourier(3, 7, 0.8, 1), 2),
    "points-quadratic": point_sums(Quadratic(3), 1),
    "points-interpolation": point_sums(Interpolation(BASIS.points, 3), 2),
    "points-pairs": point_sums(BASIS, 1, True),
    "points-landmarks": point_sums(Landmarks(BASIS.points), 1, True),
    "points-threshold": point_sums(Threshold(BASIS.points, 0.3), 2),
    "points-l1": point_sums(PositiveCodes(BASIS.points, 0.2), 1),
    "points-omp": point_sums(Pursuit(BASIS.points, 2), 2, True),
}

# Text.

WORDS = ("a", "b", "c", ".", "'")
RULES = Normalisation()


PIECES = ("a", "b", "c", "dd", "Emu", ".", "don't", "\n", "<br />", "\t", "é", "É", "\u3000", ";", '"')


def text(seed, n):
    """Rows of bytes: words that are known and others, marks, letters of two bytes, ends of lines; one row has no word."""
    rng, rows = np.random.default_rng(seed), np.zeros((n, 110), np.uint8)
    for row in rows[: max(1, n - 1)]:
        said = " ".join(["a", "b", *rng.choice(PIECES, rng.integers(1, 12))]).encode()
        row[: len(said)] = np.frombuffer(said, np.uint8)
    return rows


def pairs(**changes):
    one = word_pairs.WordPairs(WORDS, 2, RULES, 15, **changes)
    return Case(one, text, word_pairs.finish, additive=True)


def many_words():
    said = " ".join(map(str, np.random.default_rng(4).integers(0, 10**6, 9000)))
    return TokenCounts(RULES, 2**14), np.frombuffer(said.encode(), np.uint8).reshape(1, -1)


TEXT = {
    "vocabulary": Case(
        TokenCounts(RULES, 2**10), text, lambda state: most_frequent(state, 5), bulk=many_words
    ),
    "words": pairs(),
    "words-skip": pairs(unknown="skip"),
    "words-rows": pairs(rows=(1, 3)),
}

CASES = IMAGES | ROWS | TABLES | SEQUENCES | TEXT
EXACT = [name for name, case in CASES.items() if case.statistic.exact]
FLOATS = [name for name in CASES if name not in EXACT]
