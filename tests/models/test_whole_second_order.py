"""Second-order sums of whole images: exact where all images keep one number of patches, else to 2^-30 of their absolute terms."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import xarray as xr
from coded import exact_scatter, full
from executors import engine
from kinds_of_sums import BASE

import smtdist
from smtdist.data.array import as_source
from smtdist.errors import ModelError
from smtdist.kernels import context
from smtdist.kernels.types import Codes, Geometry
from smtdist.models.fit import fit
from smtdist.models.merge import merged
from smtdist.models.store import load, save
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.sums import LIMBS, finish, finish_tiles

SETTINGS = {
    "gq": BASE.replace(threshold=0.4, order=2, mean="patch"),
    "vq": BASE.replace(feature="vq", order=2, mean="patch"),
    "mirrored": BASE.replace(threshold=0.4, order=2, mean="patch", flip=True, dictionary_mirrored=True),
}


def images_with(blank, n, seed):
    """Images of 12 x 11 pixels of which so many rows are constant, so that all keep the same number of patches."""
    images = np.random.default_rng(seed).integers(0, 256, (n, 12, 11, 1), dtype=np.uint8)
    images[:, :blank] = 90
    return images


@pytest.fixture(scope="module", params=SETTINGS)
def model(request):
    return fit(as_source(images_with(0, 20, 0)), SETTINGS[request.param], engine(1))[0]


def summed(model, *images):
    """Sums of images that did not supply the atoms, as if no others had."""
    found = model.summed(as_source(np.concatenate(images)), engine(1))[0]
    return replace(found, origin=replace(found.origin, atom_samples=np.zeros(0, np.uint64)))


def same(left, right):
    assert left.matrices.keys() == right.matrices.keys()
    assert (left.n_views, left.n_squares, left.equal_sites) == (
        right.n_views,
        right.n_squares,
        right.equal_sites,
    )
    for name in (*left.matrices, "context_scatter", "second_moment"):
        one, other = (side.matrices.get(name, getattr(side, name, None)) for side in (left, right))
        np.testing.assert_array_equal(full(one), full(other), err_msg=name)
    assert left.scatter_scale == right.scatter_scale


def test_equal_numbers_are_exact_and_meet_others(model, tmp_path):
    """Sums of 100 patches an image and of 60 are exact; together they are those of a fit of both, and come apart again."""
    many, few = images_with(2, 6, 1), images_with(6, 5, 2)
    left, right, both = summed(model, many), summed(model, few), summed(model, many, few)
    assert (left.equal_sites, right.equal_sites, both.equal_sites) == (100, 60, None)
    for one, n in ((left, 100), (right, 60)):
        assert LIMBS[0] not in one.matrices
        moment = full(one.second_moment).astype(object)
        first = n * moment - (full(one.cooccurrence) + moment)  # n A A^T - s s^T
        assert (exact_scatter(one) == first * Fraction(n, (n - 1) ** 2)).all()
        assert one.scatter_scale == (n - 1) ** 2 / n
    same(left + right, both)
    same(both - right, left)
    same(both - left, right)
    terms = sum(
        Fraction(n, (n - 1) ** 2)
        * ((n + 1) * full(one.second_moment).astype(object) + full(one.cooccurrence))
        for one, n in ((left, 100), (right, 60))
    )
    error = abs(exact_scatter(both) - exact_scatter(left) - exact_scatter(right))
    assert (error <= Fraction(1, 2**30) * terms).all()
    assert error.any()
    for number, one in enumerate((left, both)):
        path = tmp_path / f"{number}.h5"
        save(
            replace(
                model, statistics=one, provenance={**model.provenance, "audit": list(one.origin.audit)}
            ),
            path,
        )
        found = load(path)
        same(found.statistics, one)
        assert not found.coarse
        with smtdist.open_datatree(path) as tree:
            np.testing.assert_array_equal(tree["statistics/context_scatter"], full(one.context_scatter))
        with xr.open_dataset(path, group="statistics", engine="h5netcdf") as stored:
            assert stored.attrs["scatter_scale"] == one.scatter_scale
            np.testing.assert_array_equal(stored["context_scatter"], full(one.context_scatter))


def test_sums_on_the_coarser_grid_of_older_files_stay_apart(model):
    """They have another basis, and say so in a sentence; on their grid they add."""
    older = replace(model, coarse=True)
    coarse, exact = summed(older, images_with(1, 3, 1)), summed(model, images_with(1, 3, 2))
    assert coarse.scatter_scale == 2**20
    for one, other in ((coarse, exact), (exact, coarse)):
        with pytest.raises(
            ModelError,
            match=r"second-order weights on another grid, so they cannot be combined; make both with",
        ):
            one + other
    with pytest.raises(ModelError, match="another grid"):
        merged(("a", replace(model, statistics=exact)), [("b", replace(older, statistics=coarse))])
    assert (coarse + summed(older, images_with(4, 3, 3))).scatter_scale == 2**20


@pytest.mark.parametrize("name", ["gq", "mirrored"])
def test_wide_windows_have_a_second_digit(name, monkeypatch, tmp_path):
    """Their sums add, come apart, are written and read; they are those of the coarser weights to half a step of these."""
    settings = SETTINGS[name].replace(context=3)
    model = fit(as_source(images_with(0, 20, 0)), settings, engine(1))[0]
    coarse = summed(model, images_with(0, 4, 1))
    monkeypatch.setattr(context, "FINE_WINDOW", 30)
    left, right, both = (
        summed(model, *some)
        for some in (
            [images_with(0, 4, 1)],
            [images_with(5, 3, 2)],
            [images_with(0, 4, 1), images_with(5, 3, 2)],
        )
    )
    same(left + right, both)
    same(both - right, left)
    assert (coarse.scatter_scale, left.scatter_scale) == (2**20, 2**30)
    difference = exact_scatter(left) - full(coarse.context_scatter) * Fraction(1, 2**20)
    counts = np.outer(left.activity, left.activity).astype(object)
    assert (abs(difference) <= Fraction(1, 2**20) * counts).all()
    assert difference.any()
    for one, other in ((coarse, left), (left, coarse)):
        with pytest.raises(ModelError, match="another grid"):
            one + other
    same(summed(replace(model, coarse=True), images_with(0, 4, 1)), coarse)
    save(
        replace(model, statistics=both, provenance={**model.provenance, "audit": list(both.origin.audit)}),
        tmp_path / "m.h5",
    )
    found = load(tmp_path / "m.h5")
    same(found.statistics, both)
    assert not found.coarse
    assert np.isfinite(found.solved(both, engine(1))[0].eigenvalues).all()


@pytest.mark.parametrize("tiles", [1, 3])
def test_300_different_numbers(model, tiles):
    """Each entry is within 2^-30 of the sum of its absolute terms, made whole or in tiles of rows, batch by batch."""
    rng, k, n = np.random.default_rng(0), len(model.dictionary.grid), 324
    encoder = replace(
        model.encoder, whitener=replace(model.encoder.whitener, geometry=Geometry(19, 19, 1, 2))
    )
    whole = CodeSums(encoder, "whole", 2, False, 300)
    active = rng.random((300, n, k)) < 0.15
    if encoder.form == "labels":
        active = np.arange(k) == rng.integers(0, k, (300, n, 1))
    kept = np.arange(n) < (n - np.arange(300))[:, None]
    active &= kept[:, :, None]
    states = [tile.zero() for tile in whole.tiled(tiles)]
    for start, stop in ((0, 1), (1, 130), (130, 300)):
        flat = active[start:stop].reshape(-1, k)
        codes = Codes(
            np.r_[0, np.cumsum(flat.sum(axis=1))],
            np.nonzero(flat)[1].astype(np.uint16),
            k,
            sites=kept[start:stop].ravel(),
        )
        for tile, state in zip(whole.tiled(tiles), states, strict=True):
            tile.add(state, codes, stop - start, None)
            state["n_samples"] += stop - start
            state["n_positions"] += int(kept[start:stop].sum())
    parts = list(zip(whole.tiled(tiles), states, strict=True))
    found = finish(*parts[0]) if tiles == 1 else finish_tiles(parts)
    exact, terms = np.zeros((k, k), object), np.zeros((k, k), object)
    for own, sites in zip(active.astype(np.int64), kept, strict=True):
        m = int(sites.sum())
        if m > 1:
            moment, s = (own.T @ own).astype(object), own.sum(axis=0).astype(object)
            exact += Fraction(m, (m - 1) ** 2) * (m * moment - np.outer(s, s))
            terms += Fraction(m, (m - 1) ** 2) * (m * moment + np.outer(s, s))
    assert found.equal_sites is None
    assert (abs(exact_scatter(found) - exact) <= Fraction(1, 2**30) * terms).all()
