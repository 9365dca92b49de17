"""The eigenproblem against independent solutions, and the laws its solutions obey."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import peak_of

from smtdist.errors import ConfigurationError, ModelError
from smtdist.solve import generalized, lapack
from smtdist.solve.generalized import (
    centred_moment,
    smallest_components,
    smallest_mirrored,
    smallest_mirrored_of_tiles,
    solve_bytes,
)
from smtdist.solve.streamed import Streamed

Problem = tuple[np.ndarray, np.ndarray, np.ndarray]


def statistics(codes: np.ndarray) -> Problem:
    """Context scatter of neighbouring columns, second moment and activity, as integers."""
    differences = codes[:, 1:] - codes[:, :-1]
    return differences @ differences.T, codes @ codes.T, codes.sum(axis=1)


@st.composite
def problems(draw: st.DrawFn) -> np.ndarray:
    """Binary codes with dead atoms and duplicated ones among the others."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    base = (rng.random((draw(st.integers(2, 12)), 60)) < 0.3).astype(np.int64)
    base[:, 0] = 1
    dead = np.zeros((draw(st.integers(0, 4)), 60), np.int64)
    twins = base[: draw(st.integers(0, 2))]
    return rng.permutation(np.concatenate([base, dead, twins]))


def principal_cosines(one: np.ndarray, two: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Cosines of the angles between two row spaces that are orthonormal in V."""
    return np.linalg.svd(one @ moment @ two.T, compute_uv=False)


@settings(deadline=None, max_examples=60)
@given(problems(), st.booleans(), st.floats(0, 1))
def test_laws(codes: np.ndarray, centred: bool, share: float) -> None:
    scatter, second, activity = statistics(codes)
    moment = centred_moment(second, activity, 60) if centred else second / 60
    rank = int(np.linalg.matrix_rank(moment, hermitian=True))
    wanted = 1 + int(share * (rank - 1))
    solution = smallest_components(scatter / 60, moment, wanted)
    p = solution.components
    assert solution.rank == rank
    np.testing.assert_array_equal(solution.dead, activity == 0)
    assert not p[:, activity == 0].any()
    np.testing.assert_allclose(p @ moment @ p.T, np.eye(wanted), atol=1e-9)
    np.testing.assert_allclose(p @ (scatter / 60) @ p.T, np.diag(solution.eigenvalues), atol=1e-9)
    assert (np.diff(solution.eigenvalues) >= -1e-10).all()
    assert (solution.residuals < 1e-11).all()
    assert (p[np.arange(wanted), np.abs(p).argmax(axis=1)] > 0).all() or centred


def well_posed(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    factor, other = rng.normal(size=(2, size, 3 * size))
    return factor @ factor.T, other @ other.T


@pytest.mark.parametrize("wanted", [1, 7, 20, 39, 40])
def test_spans_the_space_that_another_solver_finds(wanted: int) -> None:
    scatter, moment = well_posed(40)
    values, vectors = scipy.linalg.eigh(scatter, moment)
    solution = smallest_components(scatter, moment, wanted)
    np.testing.assert_allclose(solution.eigenvalues, values[:wanted], rtol=1e-10)
    assert principal_cosines(solution.components, vectors[:, :wanted].T, moment).min() > 1 - 1e-10
    assert solution.residuals.max() < 1e-13


@pytest.mark.parametrize("wanted", [3, 30])
def test_a_diagonal_is_the_same_as_its_matrix(wanted: int) -> None:
    scatter, _ = well_posed(40)
    diagonal = np.random.default_rng(1).integers(1, 1000, 40)
    diagonal[[3, 17]] = 0
    short = smallest_components(scatter, diagonal, wanted)
    full = smallest_components(scatter, np.diag(diagonal), wanted)
    np.testing.assert_allclose(short.components, full.components, atol=1e-9)
    np.testing.assert_allclose(short.eigenvalues, full.eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(short.residuals, full.residuals, rtol=1e-6, atol=1e-14)
    assert short.rank == full.rank == 38
    assert short.n_dead == 2


def test_scale_moves_eigenvalues_and_lengths_only() -> None:
    scatter, moment = well_posed(30)
    one = smallest_components(scatter, moment, 9)
    two = smallest_components(scatter * 4e6, moment * 1e4, 9)
    np.testing.assert_allclose(two.eigenvalues, one.eigenvalues * 400, rtol=1e-10)
    np.testing.assert_allclose(two.components * 100, one.components, atol=1e-10)


def test_fewer_components_are_the_first_of_more() -> None:
    scatter, moment = well_posed(30)
    few = smallest_components(scatter, moment, 5)
    for wanted in (9, 30):
        more = smallest_components(scatter, moment, wanted)
        np.testing.assert_allclose(more.components[:5], few.components, atol=1e-10)


def test_integers_and_slices_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = (np.random.default_rng(0).random((30, 500)) < 0.2).astype(np.int64)
    scatter, moment, _ = statistics(codes)
    expected = smallest_components(scatter.astype(float), moment.astype(float), 4)
    monkeypatch.setattr(generalized, "ROW_BLOCK", 7)
    before = scatter.copy(), moment.copy()
    solution = smallest_components(np.asfortranarray(scatter), moment[::1], 4)
    np.testing.assert_allclose(solution.components, expected.components, atol=1e-12)
    np.testing.assert_array_equal(scatter, before[0])
    np.testing.assert_array_equal(moment, before[1])


def test_the_64_bit_path_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    scatter, moment = well_posed(30)
    expected = smallest_components(scatter, moment, 20)
    monkeypatch.setattr(lapack, "INT32_WORKSPACE_ROWS", 10)
    solution = smallest_components(scatter, moment, 20)
    np.testing.assert_allclose(solution.components, expected.components, atol=1e-9)


def test_the_null_tolerance_decides_what_is_null() -> None:
    scatter, diagonal = np.eye(4), np.array([1.0, 1.0, 1e-6, 1e-20])
    assert smallest_components(scatter, diagonal, 1).rank == 3
    assert smallest_components(scatter, diagonal, 1, null_tolerance=1e-3).rank == 2
    assert smallest_components(scatter, np.diag(diagonal), 1, null_tolerance=1e-3).rank == 2


def test_signs_ignore_rounding() -> None:
    rows = np.array([[-1.0, 1.0 + 1e-12, 0], [0.5, -1, 1], [0, 0.2, -0.1]])
    generalized.fix_signs(rows)
    np.testing.assert_allclose(rows, [[1, -1, 0], [-0.5, 1, -1], [0, 0.2, -0.1]])


def test_residuals_see_a_scatter_that_does_not_belong_to_the_moment() -> None:
    scatter, moment = well_posed(20)
    moment[:, 3] = moment[3] = 0
    assert smallest_components(scatter, moment, 4).residuals.max() > 1e-4


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize(("wanted", "dead"), [(20, 0), (65, 15), (80, 0), (200, 0)])
@pytest.mark.parametrize("null", [False, True])
def test_the_stated_peak_holds(diagonal: bool, null: bool, wanted: int, dead: int) -> None:
    """Dead atoms and a null space leave fewer rows, of which as many components may be so many that all are found."""
    size = 400
    # rows enough that K x K arrays outweigh the row blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generalized, "ROW_BLOCK", 8)
        scatter, full = near_singular(size) if null else well_posed(size)
        for matrix in (scatter, full):
            matrix[1 : 1 + dead] = matrix[:, 1 : 1 + dead] = 0
        moment = np.diagonal(full).copy() if diagonal else full
        wanted += 1
        smallest_components(*well_posed(20), 3)  # imports what is imported late
        peak = (
            peak_of(lambda: smallest_components(scatter, moment, wanted)) + scatter.nbytes + moment.nbytes
        )
        stated = solve_bytes(size, diagonal, wanted)
    assert 0.7 * stated < peak <= stated


def near_singular(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Two atoms that always fire together: one direction in which neither V nor C has anything."""
    scatter, moment = well_posed(size)
    for matrix in (scatter, moment):
        matrix[:, -1], matrix[-1] = matrix[:, 0], matrix[0]
        matrix[-1, -1] = matrix[0, 0]
    return scatter, moment


def test_a_factor_and_eigenvectors_lead_to_the_same_components(monkeypatch: pytest.MonkeyPatch) -> None:
    scatter, moment = well_posed(90)
    by_factor = smallest_components(scatter, moment, 12)
    monkeypatch.setattr(generalized, "smallest_behind_factor", lambda *given: None)
    by_vectors = smallest_components(scatter, moment, 12)
    np.testing.assert_allclose(by_factor.eigenvalues, by_vectors.eigenvalues, rtol=1e-10)
    assert principal_cosines(by_factor.components, by_vectors.components, moment).min() > 1 - 1e-10
    assert by_factor.rank == by_vectors.rank == 90


def test_a_null_space_is_seen_by_its_eigenvalues() -> None:
    solution = smallest_components(*near_singular(60), 5)
    assert solution.rank == 59
    assert solution.residuals.max() < 1e-10


def test_a_large_diagonal_problem_needs_three_squares() -> None:
    assert solve_bytes(16_384, True, 400) <= 3 * 16_384**2 * 8


def test_too_many_components_are_refused_with_the_rank() -> None:
    codes = np.eye(6, dtype=np.int64)[:, [0, 1, 2, 3, 0, 1, 2, 3]]
    scatter, moment, activity = statistics(codes)
    for form in (moment, activity):
        with pytest.raises(
            ConfigurationError, match=r"is 5, .* only 4 dimensions \(6 atoms, of which 2 never fire\)"
        ):
            smallest_components(scatter, form, 5)
        with pytest.raises(ConfigurationError, match="at least one"):
            smallest_components(scatter, form, 0)


@pytest.mark.parametrize("in_tiles", [False, True])
def test_too_many_components_of_a_mirrored_dictionary_are_refused(in_tiles: bool) -> None:
    """Two halves of 8 atoms, of which 3 fire, have 6 dimensions together."""
    half, scatter = np.zeros((2, 8, 8))
    scatter[:3, :3], half[:3, :3] = well_posed(3)
    given: list[Any] = [np.kron(np.eye(2), one) for one in (scatter, half)]
    solve: Any = smallest_mirrored
    if in_tiles:
        given = [Streamed.of_full(one) for one in given]
        solve = partial(smallest_mirrored_of_tiles, direct=True)
    assert len(solve(*given, 6).components) == 6
    with pytest.raises(ConfigurationError, match=r"is 7, .* only 6 dimensions \(16 atoms"):
        solve(*given, 7)


@pytest.mark.parametrize("shape", [(4,), (4, 4)])
def test_no_active_atom_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="None of the 4 atoms ever fires"):
        smallest_components(np.zeros((4, 4)), np.zeros(shape), 1)


def test_what_cannot_be_statistics_is_refused() -> None:
    scatter, moment = well_posed(5)
    for wrong in (moment[:4, :4], np.ones(4), np.ones((5, 4))):
        with pytest.raises(ModelError, match="take both from the same statistics"):
            smallest_components(scatter, wrong, 1)
    with pytest.raises(ModelError, match="Entry 4 of the diagonal of V is -"):
        smallest_components(scatter, -moment, 1)
    indefinite = np.eye(5)
    indefinite[0, 1] = indefinite[1, 0] = 3
    with pytest.raises(ModelError, match=r"has the eigenvalue -2 \(the largest is 4\)"):
        smallest_components(scatter, indefinite, 1)
    broken = scatter.copy()
    broken[2, 1] = np.nan
    with pytest.raises(ModelError, match="Row 2 of context_scatter is not finite"):
        smallest_components(broken, moment, 1)
    with pytest.raises(ModelError, match="diagonal of V is nan"):
        smallest_components(scatter, np.full(5, np.nan), 1)


def test_centred_moment_is_the_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generalized, "ROW_BLOCK", 3)
    codes = (np.random.default_rng(0).random((8, 50)) < 0.4).astype(np.int64)
    codes[5], codes[6] = 1, 0
    _, second, activity = statistics(codes)
    covariance = centred_moment(second, activity, 50)
    np.testing.assert_allclose(covariance, np.cov(codes, bias=True), atol=1e-15)
    assert not covariance[[5, 6]].any()


def test_centred_moment_refuses_what_does_not_match() -> None:
    with pytest.raises(ModelError, match="they must be"):
        centred_moment(np.eye(3), np.ones(4), 5)
    with pytest.raises(ModelError, match="hold no position"):
        centred_moment(np.eye(3), np.ones(3), 0)
