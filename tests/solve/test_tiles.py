"""Tiles of rows, the factor made of them, and iterations against LAPACK."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import peak_of

from smtdist.kernels.triangle import UpperTiles
from smtdist.solve import generalized, lanczos, tiled
from smtdist.solve.factor import back_substituted, cholesky, forward_substituted, smallest_share, whitened
from smtdist.solve.generalized import smallest_components, smallest_components_of_tiles
from smtdist.solve.lanczos import NotConverged, largest_pairs
from smtdist.solve.streamed import Streamed
from smtdist.solve.tiled import Unsuitable, solve_tiles, suits, tiled_bytes


def spd(size: int, seed: int = 0) -> np.ndarray:
    factor = np.random.default_rng(seed).normal(size=(size, 3 * size))
    return factor @ factor.T / size


def posed(size: int) -> tuple[np.ndarray, np.ndarray]:
    """C and V whose whitened C is `falling`."""
    moment = spd(size)
    factor = np.linalg.cholesky(moment)
    return factor @ falling(size) @ factor.T, moment


def falling(size: int, seed: int = 0) -> np.ndarray:
    """A scatter like that of images: most eigenvalues at one end, those that are wanted far from it."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = 700 - 690 / (1 + np.arange(size)) ** 1.1
    matrix = (vectors * values) @ vectors.T
    return (matrix + matrix.T) / 2


@st.composite
def cuts(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    size = draw(st.integers(1, 30))
    matrix = np.random.default_rng(draw(st.integers(0, 99))).integers(-50, 50, (size, size))
    return matrix + matrix.T, draw(st.integers(1, 31)), draw(st.integers(1, 31))


@settings(deadline=None, max_examples=100)
@given(cuts(), st.data())
def test_tiles_hold_the_matrix(case: tuple[np.ndarray, int, int], data: st.DataObject) -> None:
    matrix, height, other = case
    tiles = UpperTiles.of(matrix, height)
    np.testing.assert_array_equal(tiles.full(), matrix)
    np.testing.assert_array_equal(tiles.cut_as(UpperTiles.of(matrix, other)).full(), matrix)
    np.testing.assert_array_equal(tiles.diagonal(), np.diagonal(matrix))
    start = data.draw(st.integers(0, len(matrix)))
    stop = data.draw(st.integers(start, len(matrix)))
    np.testing.assert_array_equal(tiles.rows(start, stop), matrix[start:stop])
    block = np.arange(2.0 * len(matrix)).reshape(-1, 2)
    np.testing.assert_array_equal(tiles.product(block), matrix @ block)
    upper = UpperTiles.summed(np.triu(tile) for tile in tiles.tiles)
    np.testing.assert_array_equal(upper.full(), matrix)


@pytest.mark.parametrize("height", [1, 7, 20, 40, 64])
def test_factor_and_quotient_are_lapacks(height: int) -> None:
    moment, scatter = spd(40), falling(40)
    factor = cholesky(UpperTiles.of(moment, height))
    assert factor is not None
    upper = np.vstack([np.hstack([np.zeros((len(t), 40 - t.shape[1])), t]) for t in factor.tiles])
    np.testing.assert_allclose(upper, scipy.linalg.cholesky(moment), atol=1e-12)
    quotient = whitened(UpperTiles.of(scatter, height), factor).full()
    inverse = np.linalg.inv(upper)
    np.testing.assert_allclose(quotient, inverse.T @ scatter @ inverse, rtol=1e-9, atol=1e-9)
    block = np.arange(80.0).reshape(40, 2)
    np.testing.assert_allclose(back_substituted(factor, block), inverse @ block, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(forward_substituted(factor, block), inverse.T @ block, rtol=1e-8, atol=1e-8)
    values = np.linalg.eigvalsh(moment)
    assert 1 <= smallest_share(factor) / (values[0] / values[-1]) < 1.5


def test_a_matrix_without_a_factor_has_none() -> None:
    assert cholesky(UpperTiles.of(np.diag([1.0, -1.0, 1.0]), 2)) is None


@pytest.mark.parametrize("wanted", [1, 5, 40])
def test_iterations_find_what_lapack_finds(wanted: int) -> None:
    matrix = falling(500)
    centre = np.trace(matrix) / 500
    flipped = centre * np.eye(500) - matrix
    values, vectors, residuals = largest_pairs(lambda x: flipped.astype(x.dtype) @ x, 500, wanted)
    expected, _ = scipy.linalg.eigh(matrix, subset_by_index=(0, wanted - 1))
    np.testing.assert_allclose(centre - values, expected, atol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(wanted), atol=1e-12)
    actual = np.linalg.norm(flipped @ vectors - vectors * values, axis=0) / values[0]
    assert residuals.max() <= lanczos.TOLERANCE
    np.testing.assert_allclose(actual, residuals, atol=1e-12)


def test_equal_eigenvalues_are_all_found() -> None:
    matrix = np.zeros(300)
    matrix[[3, 50, 51, 299]] = 1.0
    values, vectors, _ = largest_pairs(lambda x: matrix.astype(x.dtype)[:, None] * x, 300, 4)
    np.testing.assert_allclose(values, 1, atol=1e-12)
    np.testing.assert_allclose((vectors**2).sum(axis=1), matrix, atol=1e-6)


def test_what_does_not_converge_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanczos, "CYCLES", 1)
    matrix = np.linspace(0, 1, 3000)
    with pytest.raises(NotConverged):
        largest_pairs(lambda x: matrix.astype(x.dtype)[:, None] * x, 3000, 20)
    monkeypatch.setattr(lanczos, "CYCLES", 20)
    with pytest.raises(NotConverged, match="refinements"):
        largest_pairs(lambda x: 0.9 ** np.arange(100, dtype=x.dtype)[:, None] * x, 100, 2, tolerance=1e-30)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let iterations take problems that fit a test."""
    monkeypatch.setattr(tiled, "HOST", tiled.HOST._replace(crossover=100))


def both(
    scatter: np.ndarray, moment: np.ndarray, wanted: int
) -> tuple[generalized.Solution, generalized.Solution]:
    found = smallest_components(scatter, moment, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled, "HOST", tiled.HOST._replace(crossover=10**6))
        return found, smallest_components(scatter, moment, wanted)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("single_rows", [0, 10**6])
def test_both_ways_give_one_solution(
    diagonal: bool, single_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "SINGLE_ROWS", single_rows)
    calls: list[int] = []
    monkeypatch.setattr(generalized, "solve_tiles", lambda *a: calls.append(1) or solve_tiles(*a))
    scatter, moment = falling(300), spd(300)
    dead = np.array([5, 77])
    moment[dead] = moment[:, dead] = scatter[dead] = scatter[:, dead] = 0
    found, expected = both(scatter, np.diagonal(moment).copy() if diagonal else moment, 10)
    assert calls == [1]
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(found.components, expected.components, atol=1e-5)
    np.testing.assert_array_equal(found.dead, expected.dead)
    assert found.rank == expected.rank == 298
    assert found.residuals.max() < 1e-7


@pytest.mark.usefixtures("eager")
def test_the_same_bits_every_time() -> None:
    scatter, moment = falling(300), spd(300)
    one, two = (smallest_components(scatter, moment, 10) for _ in range(2))
    np.testing.assert_array_equal(one.components, two.components)


@pytest.mark.usefixtures("eager")
def test_a_null_space_goes_to_the_direct_solver() -> None:
    scatter, moment = falling(200), spd(200)
    moment[7] = moment[8]
    moment[:, 7] = moment[:, 8]
    moment[7, 7] = moment[8, 8]
    scatter[7] = scatter[8]
    scatter[:, 7] = scatter[:, 8]
    scatter[7, 7] = scatter[8, 8]
    found, expected = both(scatter, moment, 5)
    assert found.rank == 199
    np.testing.assert_array_equal(found.components, expected.components)
    with pytest.raises(Unsuitable, match="null space"):
        smallest_components_of_tiles(Streamed.of_full(scatter), Streamed.of_full(moment), 5)


@pytest.mark.usefixtures("eager")
def test_a_poor_residual_goes_to_the_direct_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    def poor(*arguments: object) -> object:
        kept, rank, vectors = solve_tiles(*arguments)  # type: ignore[arg-type]
        return kept, rank, vectors + 1e-3

    monkeypatch.setattr(generalized, "solve_tiles", poor)
    found, expected = both(falling(300), spd(300), 10)
    np.testing.assert_array_equal(found.components, expected.components)


def test_the_rule_is_by_size_and_number() -> None:
    assert suits(8192, 400)
    assert not suits(1024, 50)
    assert not suits(8192, 2000)
    assert [suits(65536, 9000, on_device) for on_device in (False, True)] == [False, True]
    assert not suits(8192, 1000, on_device=True)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("diagonal", [True, False])
def test_the_stated_peak_of_tiles_holds(diagonal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smtdist.kernels.triangle.TILE_BYTES", 8 * 1500 * 64)
    size = 1500
    scatter, moment = posed(size)
    if diagonal:
        scatter, moment = falling(size), np.eye(size)
    given = np.diagonal(moment).copy() if diagonal else Streamed.of_full(moment)
    peak = peak_of(lambda: smallest_components_of_tiles(Streamed.of_full(scatter), given, 10))
    stated = tiled_bytes(size, diagonal, 10)
    assert 0.6 * stated < peak <= stated
