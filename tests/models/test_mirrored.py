"""A dictionary that is closed under mirroring: sums of mirror images follow, and the eigenproblem is two of half the size."""

from dataclasses import replace

import numpy as np
import pytest
from coded import encode
from toys import sum_of

import smtdist
from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor, StopRequest
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, InterruptedRun, ModelError
from smtdist.evaluate import knn, run
from smtdist.kernels import mirrored, representation
from smtdist.kernels.codes import grid_patches
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.triangle import UpperTiles
from smtdist.kernels.types import Codes, Geometry
from smtdist.models import solving
from smtdist.models.fit import fit
from smtdist.models.joined import side_by_side
from smtdist.models.model import Model, code_sums, unwhitened
from smtdist.models.plan import fit_steps
from smtdist.models.readout import with_readout
from smtdist.models.solving import solve
from smtdist.models.transform import represented
from smtdist.solve import lanczos, tiled
from smtdist.solve.generalized import smallest_components, smallest_mirrored
from smtdist.statistics.covariance import PatchMoment
from smtdist.statistics.sums import finish
from tests import fake_cupy
from tests.emulated_cuda import emulate

IMAGES = np.random.default_rng(5).integers(0, 256, (24, 9, 8, 3), dtype=np.uint8)
BASE = Configuration(
    patch=3, threshold=0.2, dictionary=16, dictionary_mirrored=True, flip=True, n_components=5, mean="level"
)
GIVEN = {
    name: getattr(BASE, name) for name in ("patch_size", "n_atoms", "dictionary_mirrored", "augment_flip")
} | {"n_neighbors": 3}
SETTINGS = {
    "whole": BASE,
    "window": BASE.replace(context=2, mean="patch"),
    "left out": BASE.replace(threshold=0.5, zero_code="leave_out", context=2),
    "grey, contextual mean": BASE.replace(grey=True, mean="context", constant_patch="keep"),
    "stride, global mean": BASE.replace(stride=5, mean="global", context="whole"),
    "drawn": BASE.replace(positions=9, threshold=0.4, zero_code="leave_out"),
    "drawn, window": BASE.replace(positions=20, context=2, mean="context"),
    "drawn, stride": BASE.replace(positions=2, stride=5, mean="patch", context="whole"),
    "second order": BASE.replace(order=2),
    "second order, window": BASE.replace(order=2, context=2, threshold=0.5, zero_code="leave_out"),
    "second order, drawn": BASE.replace(order=2, context=2, positions=20, mean="patch"),
    "diverse, centred": BASE.replace(dictionary_method="diverse", moment="centred", drop=1),
}


def engine():
    return Engine(SerialExecutor(2))


@pytest.fixture(scope="module", params=SETTINGS)
def model(request):
    return fit(as_source(IMAGES), SETTINGS[request.param], engine())[0]


def summed(model, images, **changes):
    sums = replace(code_sums(model, len(images)), **changes)
    return finish(sums, sum_of(sums, images))


def test_sums_are_those_of_images_and_mirror_images_to_the_last_integer(model):
    direct, short = summed(model, IMAGES, mirrored=False), summed(model, IMAGES)
    assert (direct.n_positions, direct.equal_degree) == (short.n_positions, short.equal_degree)
    assert np.array_equal(direct.activity, short.activity)
    assert direct.matrices.keys() == short.matrices.keys()
    for name, matrix in direct.matrices.items():
        assert np.array_equal(matrix, short.matrices[name])
        assert np.array_equal(matrix, model.statistics.matrices[name])
    assert direct.activity.sum() > 0


def test_atoms_and_whitening_are_symmetric(model):
    order = mirrored.mirrored_pixels(model.geometry)
    first, second = np.split(model.dictionary.grid, 2)
    assert np.array_equal(second, first[:, order])
    assert not np.array_equal(second, first)
    whiten = model.whitener.whiten
    assert np.array_equal(whiten, whiten[np.ix_(order, order)])
    # each atom lies where the dictionary says
    whole = replace(model.whitener, sampling=model.whitener.sampling.undrawn)
    for atom in (0, -1):
        sample, place, view = (
            int(getattr(model.dictionary, f"source_{name}")[atom])
            for name in ("sample", "position", "view")
        )
        grid, _ = grid_patches(
            IMAGES[sample : sample + 1], whole, bool(view), np.array([[place]], np.int32)
        )
        assert np.array_equal(grid[:, 0], model.dictionary.grid[atom])


def test_components_are_even_or_odd_and_those_of_the_whole_problem(model):
    settings, sums = model.settings, model.statistics
    whole = solve(sums, settings.replace(dictionary_mirrored=False))
    found = model.embedding
    assert found.eigenvalues == pytest.approx(whole.eigenvalues, rel=1e-9)
    assert found.rank == whole.rank
    assert np.array_equal(found.dead, whole.dead)
    assert found.residuals.max() < 1e-9
    first, second = np.split(found.components, 2, axis=1)
    signs = np.sign((first * second).sum(axis=1))
    assert np.array_equal(second, signs[:, None] * first)
    assert {-1, 1} == set(signs.tolist())
    # one subspace: P V Pᵀ of one with the other is orthogonal
    moment = sums.second_moment / sums.n_positions
    if settings.second_moment == "second":
        assert np.linalg.svd(found.components @ moment @ whole.components.T)[1] == pytest.approx(
            1, abs=1e-6
        )


@pytest.fixture(scope="module")
def symmetric():
    """Of images that are their own mirror images: some atoms are, too, and V of all atoms has a null space."""
    left = np.random.default_rng(5).integers(0, 256, (400, 5, 7, 1))
    images = np.concatenate([left, left[:, :, -2::-1]], axis=2).astype(np.uint8)
    settings = BASE.replace(dictionary=300, n_components=6, threshold=0.45, mean="patch", context=2)
    found = fit(as_source(images), settings, engine())[0]
    first, second = np.split(found.dictionary.grid, 2)
    own = int((first == second).all(axis=1).sum())
    assert 0 < own < 40
    # nor is an atom the mirror image of another that was drawn, though every patch has its own in these images
    assert len(np.unique(found.dictionary.grid, axis=0)) == 300 - own
    return found


def in_tiles(sums, height):
    tiles = {name: UpperTiles.of(one, height) for name, one in sums.matrices.items()}
    return replace(sums, matrices=tiles)


@pytest.mark.parametrize("height", [75, 100])  # a tile ends between the halves, or none does
@pytest.mark.parametrize("way", ["tiles", "disk", "device", "device whole"])
def test_tiles_are_solved_in_halves_too(symmetric, height, way, monkeypatch, tmp_path):
    monkeypatch.setattr(tiled, "HOST", tiled.HOST._replace(crossover=60))
    sums, settings = symmetric.statistics, symmetric.settings
    if way == "device whole":  # more than an even or an odd half has
        settings = settings.replace(n_components=200)
    chosen = replace(
        solving.solve_way(300, settings, tiled=True), name=way, height=64 if way == "disk" else 0
    )
    monkeypatch.setattr(solving, "solve_way", lambda *_, **__: chosen)
    whole, notes = solve(sums, settings), []
    if way.startswith("device"):
        fake_cupy.install(monkeypatch, prompt=True)
        monkeypatch.setattr(tiled, "DEVICE", {0: tiled.HOST})
        monkeypatch.setattr(lanczos, "SMALL_ROWS", 20)
    monkeypatch.setattr(solving, "first_that_fits", lambda *_: pytest.fail("the whole problem is solved"))
    saving = Engine(SerialExecutor(2), checkpoint=tmp_path, key="k")
    saving.events.subscribe(lambda event: notes.append(event.get("text", "")))
    found, _ = solving.timed_solve(in_tiles(sums, height), settings, saving)
    assert found.eigenvalues == pytest.approx(whole.eigenvalues, rel=1e-8)
    assert (found.rank, found.dead.tolist()) == (whole.rank, whole.dead.tolist())
    first, second = np.split(found.components, 2, axis=1)
    assert np.array_equal(np.abs(first), np.abs(second))
    kept = [note.split(" in ")[-1] for note in notes if "a factor" in note]
    assert [one.split("/")[-1] for one in kept] == (
        ["even while it runs.", "odd while it runs."] if way == "disk" else []
    )
    assert not (tmp_path / "solve").exists()


def test_a_stopped_solve_keeps_the_factors_of_both_halves(symmetric, monkeypatch, tmp_path):
    monkeypatch.setattr(tiled, "HOST", tiled.HOST._replace(crossover=60))
    sums, settings = in_tiles(symmetric.statistics, 75), symmetric.settings
    chosen = replace(solving.solve_way(300, settings, tiled=True), name="disk", height=64)
    monkeypatch.setattr(solving, "solve_way", lambda *_, **__: chosen)
    want, _ = solving.timed_solve(sums, settings, engine())
    stop, written = StopRequest(), []
    plain = solving.BlockFiles.write
    monkeypatch.setattr(
        solving.BlockFiles,
        "write",
        lambda self, place, block: (written.append((self.folder.name, place)), plain(self, place, block)),
    )
    saving = Engine(SerialExecutor(1), checkpoint=tmp_path, key="k", stop=stop)
    saving.events.subscribe(lambda event: stop.set() if "odd while" in event.get("text", "") else None)
    with pytest.raises(InterruptedRun):
        solving.timed_solve(sums, settings, saving)
    assert {part for part, _ in written} == {"even", "odd"}
    found, _ = solving.timed_solve(sums, settings, Engine(SerialExecutor(1), checkpoint=tmp_path, key="k"))
    assert np.array_equal(found.components, want.components)
    assert len(written) == len(set(written)), "nothing was made twice"
    assert not (tmp_path / "solve").exists()


def test_where_one_half_has_too_few_dimensions_the_whole_is_solved():
    half = np.diag([1.0, 2.0, 3.0])
    moment = np.kron(np.ones((2, 2)), half)  # S = T: the odd problem has none
    whole = smallest_components(np.eye(6), moment, 3)
    assert smallest_mirrored(np.eye(6), moment, 3).eigenvalues == pytest.approx(whole.eigenvalues)


@pytest.mark.parametrize("mean", ["context", "level", "patch", "channel", "global"])
@pytest.mark.parametrize("stride", [1, 2])
def test_second_moments_of_mirror_images_are_permuted_ones(mean, stride, monkeypatch):
    settings = Configuration(patch=3, mean=mean, stride=stride, mean_context=2)
    whitener = unwhitened(settings, Geometry(9, 8, 3, 3), pixel_scale(np.uint8, None))
    assert mirrored.is_symmetric(whitener) == (stride == 1)
    moment, states = PatchMoment(whitener, True), []
    for both in (None, False):
        if both is not None:
            monkeypatch.setattr(mirrored, "is_symmetric", lambda whitener: False)
        states.append(moment.zero())
        moment.update(states[-1], IMAGES, 0)
    for name, value in states[0].items():
        assert np.array_equal(value, states[1][name])


@pytest.mark.parametrize(
    ("changes", "lacking"),
    [
        ({"flip": False}, "needs augment_flip;"),
        ({"feature": "vq"}, 'needs code="gq";'),
        ({"flip": False, "dictionary": 15}, "needs augment_flip and an even"),
        ({"dictionary": 15}, "needs an even n_atoms;"),
        ({"dictionary_method": "kmeans"}, 'dictionary_method="random" or "diverse";'),
        ({"zero_code": "activate_best"}, 'other than "activate_best";'),
    ],
)
def test_what_it_does_not_go_with_is_refused(changes, lacking):
    with pytest.raises(ConfigurationError, match=lacking):
        BASE.replace(**changes)


def test_what_would_be_wrong_in_silence_is_refused():
    free = fit(as_source(IMAGES), BASE.replace(dictionary_mirrored=False), engine())[0]
    with pytest.raises(ModelError, match="those of this dictionary are not"):
        fit(as_source(IMAGES), BASE, engine(), base=free)
    with pytest.raises(ConfigurationError, match="On a stride of 2 the patches of"):
        fit(as_source(IMAGES), BASE.replace(stride=2), engine())
    with pytest.raises(ConfigurationError, match="are not tuned"):
        smtdist.tune(smtdist.SMT(**GIVEN), {"ridge": [0.1, 0.2]}, IMAGES, np.arange(24) % 2)


def test_a_plan_counts_one_view_and_half_of_the_atoms_drawn():
    steps = {
        one: fit_steps(as_source(IMAGES), BASE.replace(dictionary_mirrored=one)) for one in (True, False)
    }
    work = [one[-1].work_per_sample for one in steps.values()]
    assert work[0] * 2 == work[1]
    assert [one[1].statistic.size for one in steps.values()] == [8, 16]
    assert isinstance(fit(as_source(IMAGES), BASE, engine())[0], Model)


@pytest.mark.parametrize("features", ["embedding", "codes", "both"])
def test_features_of_mirror_images_have_the_bits_of_those_of_images_that_are_mirrored(model, features):
    seen = with_readout(model, features, mirrored=True)
    found = represented(seen, as_source(IMAGES), engine())
    plain = with_readout(model, features)
    for view, images in enumerate((IMAGES, IMAGES[:, :, ::-1])):
        own = represented(plain, as_source(np.ascontiguousarray(images)), engine())
        assert np.array_equal(found[:, view], own.reshape(len(own), -1))


def test_codes_of_mirror_images_are_the_same_on_a_device(model, monkeypatch):
    codes = encode(IMAGES, model.encoder, False)
    found = mirrored.mirrored_codes(codes, model.geometry.columns)
    again = encode(np.ascontiguousarray(IMAGES[:, :, ::-1]), model.encoder, False)
    emulate(monkeypatch)
    device = fake_cupy.install(monkeypatch)
    there = Codes(device.asarray(codes.indptr), device.asarray(codes.indices), codes.n_atoms)
    other = mirrored.mirrored_codes(there, model.geometry.columns)
    assert isinstance(other.indices, fake_cupy.DeviceArray)
    for one in (again, other):
        assert np.array_equal(np.asarray(one.indptr), found.indptr)
        assert np.array_equal(np.asarray(one.indices), found.indices)
    # and so are the embeddings of both views
    components, geometry = model.components(None, None), model.geometry
    how = (len(IMAGES), geometry.rows, geometry.columns, 3, 1, 2)
    signs = representation.signs_of_halves(components)
    here, over_there = (
        representation.represent_symmetric(one, components, signs, *how) for one in (codes, there)
    )
    assert here.any()
    assert np.array_equal(here, np.asarray(over_there))


@pytest.mark.parametrize("together", [False, True])
def test_votes_of_mirror_images_are_those_of_images_that_are_mirrored(model, together, monkeypatch):
    seen = with_readout(side_by_side(model, [model] if together else []), None, n_components=2)
    labels = np.arange(24) % 3
    known, asked = run.Labelled(as_source(IMAGES), labels), run.Labelled(as_source(IMAGES[:9]), labels[:9])
    both = np.concatenate([IMAGES, IMAGES[:, :, ::-1]])
    twice = run.Labelled(as_source(both), np.tile(labels, 2))
    kept = []
    monkeypatch.setattr(
        run, "classified", lambda data, *_: kept.append((np.array(data.train), data.train_y))
    )
    for part in (known.and_mirrored(), twice):
        run.Comparison(seen, part, asked, knn.SoftNeighbours(k=3)).found(engine())
    assert np.array_equal(kept[0][0], kept[1][0])
    assert np.array_equal(kept[0][1], kept[1][1])
