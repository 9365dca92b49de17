"""The identities of the design (section 1) and small cases by hand, checked on the oracle itself."""

from fractions import Fraction

import numpy as np
import pytest
import reference as oracle
from drawing import coded_images
from hypothesis import given, settings
from hypothesis import strategies as st

law = settings(deadline=None, max_examples=40)
contexts = st.sampled_from([1, 2, 3, "whole"])


def nearness(A, rows, columns, context):
    """Neighbour lists of one image among its kept positions."""
    return oracle.neighbours(rows, columns, context, A.sum(axis=0) > 0)


@law
@given(coded_images(images=1))
def test_whole_image_first_order_is_n_moment_less_outer_sum(drawn):
    (A,), rows, columns = drawn
    got = oracle.statistics([A], rows, columns, "whole", 1)
    n, s = got["n_positions"], A.sum(axis=1)
    np.testing.assert_array_equal(got["context_scatter"], n * A @ A.T - np.outer(s, s))


@law
@given(coded_images(images=1))
def test_whole_image_second_order_is_the_first_times_a_factor(drawn):
    (A,), rows, columns = drawn
    first = oracle.statistics([A], rows, columns, "whole", 1)
    D, n = oracle.second_order(nearness(A, rows, columns, "whole")), first["n_positions"]
    assert ((n - 1) ** 2 * (A @ D @ D.T @ A.T) == n * first["context_scatter"]).all()
    second = oracle.statistics([A], rows, columns, "whole", 2)
    # the weight is off by half a step of a grid that leaves it 30 bits
    error = (n - 1) ** 2 * second["context_scatter"] - second["scale"] * n * first[
        "context_scatter"
    ].astype(object)
    assert np.all(2**30 * abs(error) <= second["scale"] * n * abs(first["context_scatter"]))


def test_second_order_of_a_small_context_is_not_the_first_order():
    near = oracle.neighbours(1, 4, 1, [True] * 4)
    first = oracle.first_order(near)
    assert np.array_equal(first @ first.T, [[1, -1, 0, 0], [-1, 2, -1, 0], [0, -1, 2, -1], [0, 0, -1, 1]])
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    D = [[1, -half, 0, 0], [-1, 1, -half, 0], [0, -half, 1, -1], [0, 0, -half, 1]]
    assert np.array_equal(oracle.second_order(near), np.array(D, dtype=object))
    L = [
        [1 + quarter, -1 - half, quarter, 0],
        [-1 - half, 2 + quarter, -1, quarter],
        [quarter, -1, 2 + quarter, -1 - half],
        [0, quarter, -1 - half, 1 + quarter],
    ]
    assert np.array_equal(oracle.operator_2(near), 2**20 * np.array(L, dtype=object))


@law
@given(coded_images(images=1), contexts)
def test_first_order_from_degrees_and_neighbour_products(drawn, context):
    (A,), rows, columns = drawn
    near, K = nearness(A, rows, columns, context), len(A)
    twice = np.zeros((K, K), dtype=np.int64)
    for i, js in enumerate(near):
        twice += 2 * len(js) * np.outer(A[:, i], A[:, i])
        for j in js:
            assert i in near[j]
            twice -= np.outer(A[:, i], A[:, j]) + np.outer(A[:, j], A[:, i])
    np.testing.assert_array_equal(
        2 * oracle.statistics([A], rows, columns, context, 1)["context_scatter"], twice
    )


@law
@given(coded_images(images=1), contexts)
def test_first_order_is_the_sum_over_unordered_pairs_of_differences(drawn, context):
    (A,), rows, columns = drawn
    total = np.zeros((len(A), len(A)), dtype=np.int64)
    for i, js in enumerate(nearness(A, rows, columns, context)):
        for j in js:
            if i < j:
                total += np.outer(A[:, i] - A[:, j], A[:, i] - A[:, j])
    np.testing.assert_array_equal(
        oracle.statistics([A], rows, columns, context, 1)["context_scatter"], total
    )


@law
@given(coded_images(), contexts)
def test_scatter_is_degrees_less_cooccurrence(drawn, context):
    images, rows, columns = drawn
    got = oracle.statistics(images, rows, columns, context, 1)
    weighted = sum(
        A @ np.diag([len(js) for js in nearness(A, rows, columns, context)]) @ A.T for A in images
    )
    np.testing.assert_array_equal(got["context_scatter"], weighted - got["cooccurrence"])


@law
@given(coded_images(leave_out=False))
def test_equal_sizes_derive_the_whole_image_scatter(drawn):
    images, rows, columns = drawn
    got = oracle.statistics(images, rows, columns, "whole", 1)
    derived = (rows * columns - 1) * got["second_moment"] - got["cooccurrence"]
    np.testing.assert_array_equal(got["context_scatter"], derived)


@law
@given(coded_images(kind=("vq",)))
def test_one_hot_moment_is_the_diagonal_of_activity(drawn):
    images, rows, columns = drawn
    got = oracle.statistics(images, rows, columns, 1, 1)
    np.testing.assert_array_equal(got["second_moment"], np.diag(got["activity"]))
    assert got["activity"].sum() == got["n_positions"] == sum(int(A.any(axis=0).sum()) for A in images)


@law
@given(coded_images(), contexts, st.sampled_from([1, 2]))
def test_statistics_add_and_subtract_over_samples(drawn, context, order):
    images, rows, columns = drawn
    whole = oracle.statistics(images, rows, columns, context, order)
    parts = [oracle.statistics([A], rows, columns, context, order) for A in reversed(images)]
    for name in whole.keys() - {"scale", "sites", "most"}:
        np.testing.assert_array_equal(whole[name], sum(part[name] for part in parts))
    assert np.array_equal(whole["context_scatter"], whole["context_scatter"].T)


@law
@given(coded_images(leave_out=False, images=6))
def test_equal_sizes_smallest_of_scatter_are_largest_of_outer_sums(drawn):
    images, rows, columns = drawn
    got = oracle.statistics(images, rows, columns, "whole", 1)
    n, outer = rows * columns, sum(np.outer(A.sum(axis=1), A.sum(axis=1)) for A in images)
    arguments = got["second_moment"], got["n_positions"], got["activity"], "second", len(outer)
    P, smallest, rank = oracle.solve(got["context_scatter"], *arguments)
    largest_P, negated, _ = oracle.solve(-outer, *arguments)
    np.testing.assert_allclose(smallest, n + negated, atol=1e-9 * n)
    for L in range(1, rank):
        if smallest[L] - smallest[L - 1] > 1e-3:  # the space of the first L components is determined
            np.testing.assert_allclose(P[:L].T @ P[:L], largest_P[:L].T @ largest_P[:L], atol=1e-8)


@law
@given(coded_images(images=4), contexts, st.sampled_from(["second", "centred"]))
def test_solution_meets_its_constraint_and_diagonalises_the_objective(drawn, context, moment):
    images, rows, columns = drawn
    got = oracle.statistics(images, rows, columns, context, 1)
    N, K = max(got["n_positions"], 1), len(images[0])
    scatter, second, activity = got["context_scatter"], got["second_moment"], got["activity"]
    P, values, rank = oracle.solve(scatter, second, N, activity, moment, K)
    V = second / N - np.outer(activity, activity) / N**2 * (moment == "centred")
    assert len(P) == len(values) == rank
    np.testing.assert_allclose(P @ V @ P.T, np.eye(rank), atol=1e-7)
    np.testing.assert_allclose(P @ (scatter / N) @ P.T, np.diag(values), atol=1e-7 * (rows * columns))
    silent = activity == 0
    np.testing.assert_allclose(
        P[:, silent], 0, atol=1e-9
    )  # dead atoms are no spurious smallest eigenvector


@law
@given(coded_images(kind=("vq",), leave_out=False), contexts)
def test_one_hot_codes_have_a_constant_first_component(drawn, context):
    images, rows, columns = drawn
    got = oracle.statistics(images, rows, columns, context, 1)
    N, activity = got["n_positions"], got["activity"]
    _, values, _ = oracle.solve(got["context_scatter"], got["second_moment"], N, activity, "second", 1)
    np.testing.assert_allclose(values, 0, atol=1e-9 * N)


@pytest.mark.parametrize(("pixels", "scale", "bits"), [(36, 4093, 28), (108, 4090, 28), (3072, 4068, 25)])
def test_grids_of_the_design(pixels, scale, bits):
    assert oracle.grid_scale(pixels) == scale
    assert oracle.grid_scale(pixels) ** 2 + pixels / 4 + scale * pixels**0.5 <= 2**24
    W = oracle.integer_whiten(np.eye(pixels) * 3.0)
    assert W.max() == 3 * 2 ** (bits - 2)
    assert W.max() * pixels * 2**16 <= 2**53


@pytest.mark.parametrize(
    ("total", "count", "mean"), [(3, 2, 2), (-3, 2, -1), (5, 4, 1), (6, 4, 2), (-6, 4, -1)]
)
def test_means_are_rounded_half_up(total, count, mean):
    assert oracle.half_up(total, count) == mean


def test_pixels_and_means_by_hand():
    grey = oracle.pixel_units(np.array([[[[1, 2, 3]]]], dtype=np.uint8), grey=True)
    assert grey.ravel().tolist() == [77 + 300 + 87]
    floats = np.array([[[-1.0, 0.0, 1.0]]])
    assert oracle.pixel_units(floats, (-1.0, 1.0)).ravel().tolist() == [0, 2**15, 2**16]
    units = np.array([0, 1, 4]).reshape(1, 1, 3, 1)
    assert oracle.mean_removed(units, 1, "context", 1).ravel().tolist() == [0 - 1, 1 - 2, 4 - 3]
    assert oracle.mean_removed(units, 1, "context", "whole").ravel().tolist() == [-2, -1, 2]
    colours = np.array([0, 10, 2, 20, 4, 30, 6, 41]).reshape(1, 2, 2, 2)
    assert oracle.patches(colours, 2).ravel().tolist() == colours.ravel().tolist()
    assert oracle.mean_removed(colours, 2, "channel", 1).ravel().tolist() == [-3, -15, -1, -5, 1, 5, 3, 16]
    of_patch = [-14, -4, -12, 6, -10, 16, -8, 27]
    assert oracle.mean_removed(colours, 2, "patch", 1).ravel().tolist() == of_patch


def test_neighbours_by_hand():
    kept = [True] * 9
    assert oracle.neighbours(3, 3, 1, kept)[0] == [1, 3, 4]
    assert oracle.neighbours(3, 3, 1, kept)[5] == [1, 2, 4, 7, 8]
    assert oracle.neighbours(3, 3, 2, kept) == oracle.neighbours(3, 3, "whole", kept)
    kept[4] = False
    assert oracle.neighbours(3, 3, 1, kept)[:5] == [[1, 3], [0, 2, 3, 5], [1, 5], [0, 1, 6, 7], []]


def test_codes_by_hand():
    s = oracle.grid_scale(2)
    atoms = np.array([[s, 0], [0, s], [0, s]])
    grid, nothing = np.array([[0, s], [-s, 0], [0, 0]]), np.array([False, False, True])
    leave, best = ("leave_out", "leave_out"), ("activate_best", "activate_best")
    for code, zero, expected in (
        ("gq", leave, [[0, 1, 1], [0, 0, 0], [0, 0, 0]]),
        ("gq", best, [[0, 1, 1], [0, 1, 0], [1, 0, 0]]),
        ("vq", leave, [[0, 1, 0], [0, 1, 0], [0, 0, 0]]),
    ):
        assert oracle.codes(grid, atoms, code, 0.3, nothing, *zero).T.tolist() == expected
    shrunk = np.array([[s, 0], [0, s], [9, 9]])
    euclidean = oracle.codes(grid, shrunk, "vq", 0.3, nothing, *best, euclidean=True)
    assert euclidean.T.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]


def test_unit_grid_judges_contrast_in_grey_levels():
    removed = np.array([[256, -256], [256, -255], [0, 0], [512, 0]])
    grid, constant = oracle.unit_grid(removed, np.eye(2, dtype=np.int64), 1.0, is_float=False)
    assert constant.tolist() == [False, True, True, False]
    assert grid.tolist() == [[2896, -2896], [0, 0], [0, 0], [4095, 0]]
    assert oracle.unit_grid(removed, np.eye(2, dtype=np.int64), 0.0, is_float=False)[1].tolist()[2]


def test_pooling_and_votes_by_hand():
    A = np.array([[1, 0, 1], [0, 0, 1]])
    z = oracle.transform([A], np.array([[1.0, 1.0]]), 1, 3, 1, 2)
    assert z.shape == (1, 1, 2, 1)
    np.testing.assert_array_equal(z.ravel(), [1.0, 1.0])
    assert oracle.transform([0 * A], np.array([[1.0, 1.0]]), 1, 3, 1, 1).ravel().tolist() == [0, 0, 0]
    x = np.eye(2)
    near, far = [1.0, 0.1], [0.6, 0.8]
    train, labels = np.array([near, far, far]), np.array([0, 1, 1])
    assert oracle.soft_knn(train, labels, x[:1], 3, 0.03, "hard").tolist() == [1]
    assert oracle.soft_knn(train, labels, x[:1], 3, 0.03, "linear").tolist() == [1]
    assert oracle.soft_knn(train, labels, x[:1], 3, 0.03, "exp").tolist() == [0]
    assert oracle.soft_knn(train, labels, x, 1, 0.03, "hard").tolist() == [0, 1]
    assert oracle.soft_knn(x, np.array([1, 0]), np.array([[1.0, 1.0]]), 1, 0.03, "hard").tolist() == [1]
