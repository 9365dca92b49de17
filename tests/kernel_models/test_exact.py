"""The exact kernel models against the paper's definitions: Theorems 3, 4 and 5."""

import numpy as np
import pytest
import reference
from drawing import unit_rows
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kernel_models import reference_kernels as ref
from sklearn.datasets import make_circles

from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels.augment import Augmentation
from smtdist.kernels.gram import OWN, Kernel, median_bandwidth, with_bandwidth
from smtdist.models.kernel.autoencoder import autoencoder, autoencoder_objective, tangent
from smtdist.models.kernel.contrastive import (
    contrast,
    contrastive,
    drawn_triplets,
    given_triplets,
    gram_of_differences,
    spectral,
)
from smtdist.models.kernel.settings import KernelSettings

KERNELS = {"linear": Kernel("linear"), "polynomial": Kernel("polynomial", degree=2)}


def triplets_of(seed, n, d, spread=0.4):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    return given_triplets(x, x + spread * rng.standard_normal((n, d)), rng.standard_normal((n, d)))


def features_of(triplets, name):
    return tuple(
        ref.mapped(part, name) for part in (triplets.anchors, triplets.positives, triplets.negatives)
    )


# the hypothesis-drawn law: any of the shapes that the definitions allow
shapes = {
    "seed": st.integers(0, 2**16),
    "n": st.integers(2, 9),
    "d": st.integers(1, 3),
    "components": st.integers(1, 2),
}


@pytest.mark.parametrize("name", KERNELS)
@settings(deadline=None, max_examples=20)
@given(**shapes)
@example(seed=0, n=9, d=3, components=2)
def test_theorem_3_is_the_constrained_optimum(name, seed, n, d, components):
    triplets = triplets_of(seed, n, d)
    x, plus, minus = features_of(triplets, name)
    span = np.linalg.matrix_rank(np.concatenate([x, minus - plus], axis=1))
    assume(components <= span)
    form = x @ (plus - minus).T
    whole = np.linalg.eigvalsh(form + form.T)
    try:
        encoder, spectrum = contrastive(KERNELS[name], triplets, components)
    except DataError:
        assert (whole >= 0).sum() - (len(x) - span) < components
        return
    assert spectrum.rank == span
    best = ref.minimise_simple_loss(x, plus, minus, components)
    optimum = ref.simple_loss(best, x, plus, minus)
    scale = np.abs(whole).max()
    np.testing.assert_allclose(spectrum.loss(components), optimum, atol=1e-6 * scale)
    # the loss of the embedding itself, by Definition 1
    z, near, far = (encoder(part) for part in (triplets.anchors, triplets.positives, triplets.negatives))
    np.testing.assert_allclose((z * (far - near)).sum(), optimum, atol=1e-6 * scale)
    gaps = np.diff(spectrum.eigenvalues[: components + 1])
    if (np.abs(gaps) > 1e-2 * scale).all() and len(gaps) == components:
        new = np.random.default_rng(seed).standard_normal((4, d))
        theirs = best.T @ ref.mapped(new, name)
        np.testing.assert_allclose(encoder(new) @ encoder(new).T, theirs.T @ theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", KERNELS)
@settings(deadline=None, max_examples=20)
@given(**shapes)
def test_weights_are_orthonormal_in_feature_space(name, seed, n, d, components):
    triplets = triplets_of(seed, n, d)
    try:
        encoder, _ = contrastive(KERNELS[name], triplets, components)
    except DataError:
        assume(False)
    weights = ref.mapped(encoder.rows, name) @ encoder.coefficients
    np.testing.assert_allclose(weights.T @ weights, np.eye(components), atol=1e-7)


@pytest.mark.parametrize("name", OWN)
def test_weights_are_orthonormal_for_every_kernel(name):
    encoder, spectrum = contrastive(Kernel(name), triplets_of(3, 12, 3), 2)
    products = encoder.coefficients.T @ encoder.kernel(encoder.rows, encoder.rows) @ encoder.coefficients
    np.testing.assert_allclose(products, np.eye(2), atol=1e-8)
    assert spectrum.n_positive + spectrum.n_negative <= spectrum.rank <= 24


def test_k1_is_a_gram_matrix_with_the_transposed_block_only():
    triplets = triplets_of(1, 6, 8)
    x, plus, minus = features_of(triplets, "linear")
    vectors = np.concatenate([x, minus - plus], axis=1)
    found = gram_of_differences(Kernel("linear"), triplets)
    np.testing.assert_allclose(found, vectors.T @ vectors, atol=1e-12)
    printed = found.copy()
    printed[6:, :6] = found[:6, 6:]
    assert not np.allclose(printed, printed.T)


def test_the_closed_form_equals_the_printed_matrices_where_k1_is_regular():
    """K₁^(-1/2) K₂ K₁^(-1/2) and A = K₁^(-1/2) A₂ literally, with the one block put right."""
    triplets = triplets_of(5, 7, 3)
    kernel = Kernel("laplacian")
    x, plus, minus = triplets.anchors, triplets.positives, triplets.negatives
    k3 = kernel(x, minus) - kernel(x, plus)
    k1 = gram_of_differences(kernel, triplets)
    product = np.concatenate([k3, k1[7:, 7:]]) @ np.concatenate([kernel(x, x), k3], axis=1)
    k2 = -(product + product.T) / 2
    values, vectors = np.linalg.eigh(k1)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    values, vectors = np.linalg.eigh(root @ k2 @ root)
    a = root @ vectors[:, ::-1][:, :2]
    new = np.random.default_rng(0).standard_normal((5, 3))
    theirs = np.concatenate([kernel(new, x), kernel(new, minus) - kernel(new, plus)], axis=1) @ a
    encoder, spectrum = contrastive(kernel, triplets, 2)
    np.testing.assert_allclose(np.abs(encoder(new)), np.abs(theirs), atol=1e-9)
    np.testing.assert_allclose(spectrum.eigenvalues, values[::-1], atol=1e-9)


def test_repeated_rows_do_not_change_the_span_that_is_searched():
    """Negatives that are other anchors make K₁ singular, and no harm."""
    rows = np.random.default_rng(2).standard_normal((20, 2))
    encoder, spectrum = contrastive(Kernel(), drawn_triplets(rows, Augmentation(), 0), 3)
    assert spectrum.rank <= 40
    assert np.isfinite(encoder(rows)).all()


def spectral_objective(embedded, gram, ridge):
    """The objective of Theorem 4 at Z (h, 3n) and its gradient 2 λ Z K⁻¹ + ..., as printed, for a regular K."""
    penalty = np.linalg.solve(gram, embedded.T).T
    loss, gradient = contrast(embedded)
    return loss + ridge * float(np.vdot(penalty, embedded)), gradient + 2 * ridge * penalty


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**16), n=st.integers(2, 6), components=st.integers(1, 3))
def test_theorem_4_gradient_against_finite_differences(seed, n, components):
    triplets = triplets_of(seed, n, 2)
    gram = Kernel("laplacian")(triplets.stacked, triplets.stacked)
    z = np.random.default_rng(seed).standard_normal((components, 3 * n))
    _, gradient = spectral_objective(z, gram, 0.3)
    numeric = ref.slope(lambda point: spectral_objective(point, gram, 0.3)[0], z)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5 * np.abs(numeric).max())


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**16), components=st.integers(1, 2))
def test_theorem_4_objective_is_definition_2_for_explicit_features(seed, components):
    triplets = triplets_of(seed, 3, 3)  # 9 rows in 10 features: K is regular
    x, plus, minus = features_of(triplets, "polynomial")
    every = np.concatenate([x, plus, minus], axis=1)
    z = np.random.default_rng(seed).standard_normal((components, 9))
    shortest = (every @ np.linalg.solve(every.T @ every, z.T)).reshape(10, components)
    found, _ = spectral_objective(z, KERNELS["polynomial"](triplets.stacked, triplets.stacked), 0.2)
    np.testing.assert_allclose(found, ref.spectral_loss(shortest, x, plus, minus, 0.2), rtol=1e-6)


def settings_for(components, ridge, **given):
    return KernelSettings(n_components=components, alpha=ridge, **given)


@pytest.mark.parametrize("method", ["lbfgs", "gradient"])
def test_the_spectral_minimum_is_that_of_the_features(method):
    triplets = triplets_of(7, 8, 2, spread=0.2)
    x, plus, minus = features_of(triplets, "linear")
    encoder, convergence, ridge = spectral(
        Kernel("linear"), triplets, settings_for(2, 0.5, negatives="one", method=method, tolerance=1e-8)
    )
    assert convergence.converged
    assert convergence.gradient_norm <= 1e-5
    assert ridge == 0.5
    best = ref.minimise_spectral_loss(lambda w: ref.spectral_loss(w, x, plus, minus, 0.5), 2, 2)
    np.testing.assert_allclose(convergence.loss, best, rtol=1e-6)
    weights = ref.mapped(encoder.rows, "linear") @ encoder.coefficients
    np.testing.assert_allclose(ref.spectral_loss(weights, x, plus, minus, 0.5), best, rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_the_mean_over_negatives_is_that_of_the_features(name):
    triplets = triplets_of(8, 5, 2)
    x, plus, _ = features_of(triplets, name)
    encoder, convergence, ridge = spectral(KERNELS[name], triplets, settings_for(1, 0.5, tolerance=1e-9))
    best = ref.minimise_spectral_loss(lambda w: ref.spectral_loss_all(w, x, plus, ridge), len(x), 1)
    np.testing.assert_allclose(convergence.loss, best, rtol=1e-6)
    assert encoder.rows.shape == (10, 2)


def test_one_negative_an_anchor_may_leave_no_minimum():
    """As printed the loss falls without end along functions that hold every anchor orthogonal to its negative."""
    rows = np.random.default_rng(0).standard_normal((40, 3))
    triplets = drawn_triplets(rows, Augmentation(), 0)
    with pytest.raises(
        DataError, match=r"The spectral loss has no minimum for the kernel gaussian with ridge 1\b"
    ):
        spectral(Kernel(), triplets, settings_for(2, 1.0, negatives="one"))
    # the direction itself: zero at every negative, so that the quartic term vanishes
    stacked = triplets_of(0, 8, 2).stacked
    gram = Kernel("laplacian")(stacked, stacked)
    anchors = np.zeros((1, 24))
    anchors[0, 0], anchors[0, 8] = 1, 1
    losses = [spectral_objective(scale * anchors, gram, 0.1)[0] for scale in (1, 10, 100)]
    assert losses[0] < 0
    np.testing.assert_allclose(losses, losses[0] * np.array([1, 100, 10_000]), rtol=1e-9)
    assert spectral(Kernel(), triplets, settings_for(2, 1.0))[1].converged


def test_a_ridge_that_leaves_only_zero_is_refused():
    with pytest.raises(ConfigurationError, match="embedded at zero; set ridge below"):
        spectral(Kernel(), triplets_of(0, 8, 2), settings_for(1, 1e6, negatives="one"))


@pytest.mark.parametrize("decoder", ["linear", "polynomial"])
@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(2, 6),
    components=st.integers(1, 3),
    ridge=st.sampled_from([0.05, 0.5]),
)
def test_theorem_5_is_definition_3_for_explicit_features(decoder, seed, n, components, ridge):
    rng = np.random.default_rng(seed)
    rows, points = rng.standard_normal((n, 3)), rng.standard_normal((n, components))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    features = ref.mapped(rows, "polynomial")
    gram = KERNELS["polynomial"](rows, rows)
    assume(np.linalg.cond(gram) < 1e8)
    first = features @ np.linalg.solve(features.T @ features, points)
    second = ref.best_decoder(points.T, rows.T, decoder, ridge)
    wanted = ref.autoencoder_loss(first, second, features, rows.T, decoder, ridge)
    found, slope = autoencoder_objective(points, KERNELS[decoder], np.linalg.inv(gram), rows, ridge)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    numeric = ref.slope(
        lambda z: autoencoder_objective(z, KERNELS[decoder], np.linalg.inv(gram), rows, ridge)[0], points
    )
    np.testing.assert_allclose(slope, numeric, rtol=1e-4, atol=1e-5 * max(1, np.abs(numeric).max()))
    np.testing.assert_allclose(
        (tangent(points, slope) * points).sum(axis=1), 0, atol=1e-9 * np.abs(slope).max()
    )


def test_theorem_5_in_its_printed_form():
    rng = np.random.default_rng(3)
    rows, points = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    kx, kz = Kernel("laplacian")(rows, rows), Kernel("laplacian")(points, points)
    q = rows.T @ np.linalg.solve(kz + 0.3 * np.eye(6), kz)
    traces = np.trace(points.T @ np.linalg.solve(kx, points)) + np.trace(q @ np.linalg.solve(kz, q.T))
    printed = ((q - rows.T) ** 2).sum() + 0.3 * traces
    found, _ = autoencoder_objective(points, Kernel("laplacian"), np.linalg.inv(kx), rows, 0.3)
    np.testing.assert_allclose(found, printed)


@pytest.mark.parametrize("method", ["lbfgs", "gradient"])
def test_the_autoencoder_ends_where_the_slope_along_the_spheres_is_flat(method):
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((15, 3))
    encode, decode, convergence = autoencoder(
        Kernel("laplacian"),
        rows,
        settings_for(2, 0.1, nugget=0, method=method, tolerance=1e-7, max_iter=3000),
    )
    assert convergence.converged
    gram = Kernel("laplacian")(rows, rows)
    points = encode(rows)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-9)
    loss, slope = autoencoder_objective(points, Kernel(), np.linalg.inv(gram), rows, 0.1)
    np.testing.assert_allclose(loss, convergence.loss, rtol=1e-9)
    assert np.abs(tangent(points, slope)).max() < 1e-3 * np.abs(slope).max()
    other = unit_rows(rng, 15, 2)
    assert loss < autoencoder_objective(other, Kernel(), np.linalg.inv(gram), rows, 0.1)[0]
    # reconstruction as printed, X (K_Z + λ I)⁻¹ k(z*, Z)
    new = rng.standard_normal((4, 3))
    z = np.linalg.solve(gram, points).T @ Kernel("laplacian")(rows, new)
    np.testing.assert_allclose(encode(new), z.T, atol=1e-9)
    weights = np.linalg.solve(Kernel()(points, points) + 0.1 * np.eye(15), rows)
    np.testing.assert_allclose(decode(encode(new)), Kernel()(z.T, points) @ weights, atol=1e-9)


@pytest.mark.parametrize("n_init", [0, 6])
def test_the_autoencoder_is_never_above_a_bottleneck_that_is_one_point(n_init):
    # where one descent from the leading eigenvectors ends three times above it
    rows = make_circles(40, noise=0.05, factor=0.5, random_state=0)[0] * 2
    kernel = with_bandwidth(Kernel(), "median", rows)
    _, decode, ended = autoencoder(kernel, rows, settings_for(2, 0.1, n_init=n_init))
    gram = kernel(rows, rows) + 1e-6 * np.eye(40)

    def printed(points):
        gaussian = lambda x, y: np.exp(-((x - y) ** 2).sum() / 2)  # noqa: E731
        return reference.autoencoder_objective(points.T, rows.T, gram, gaussian, 0.1)

    assert ended.converged
    assert ended.loss == pytest.approx(printed(decode.rows), rel=1e-6)
    assert ended.loss <= printed(np.tile([0.6, 0.8], (40, 1)))
    if n_init:
        again = autoencoder(kernel, rows, settings_for(2, 0.1, n_init=0))[2]
        assert ended.loss <= again.loss * (1 + 1e-6)


def test_de_noising_reconstructs_the_clean_rows():
    rng = np.random.default_rng(5)
    angle = rng.uniform(0, 2 * np.pi, 80)
    clean = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    noisy = clean + 0.15 * rng.standard_normal(clean.shape)
    encode, decode, _ = autoencoder(Kernel(), noisy, settings_for(2, 0.05, nugget=1e-2, n_init=4), clean)
    other = np.stack([np.cos(angle + 0.01), np.sin(angle + 0.01)], axis=1)
    asked = other + 0.15 * rng.standard_normal(other.shape)
    assert ((decode(encode(asked)) - other) ** 2).mean() < 0.8 * ((asked - other) ** 2).mean()


@pytest.mark.parametrize("name", OWN)
def test_kernels_equal_their_formulas_and_slopes(name):
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    kernel = Kernel(name, bandwidth=0.7 if name in ("gaussian", "laplacian") else 1.0)
    wanted = [[ref.kernel_value(name, a, b, kernel.bandwidth) for b in y] for a in x]
    np.testing.assert_allclose(kernel(x, y), wanted, rtol=1e-9)
    np.testing.assert_allclose(
        kernel.diagonal(x), [ref.kernel_value(name, a, a, 0.7) for a in x], rtol=1e-7
    )
    weights = rng.standard_normal((4, 4))
    weights += weights.T
    numeric = ref.slope(lambda z: float((weights * kernel(z, z)).sum()), x)
    np.testing.assert_allclose(kernel.pull_back(x, weights), numeric, rtol=1e-5, atol=1e-6)


def test_kernels_of_scikit_learn_are_taken_by_name_and_by_value():
    from sklearn.gaussian_process.kernels import Matern
    from sklearn.metrics.pairwise import cosine_similarity

    x = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_allclose(Kernel("cosine")(x, x), cosine_similarity(x))
    np.testing.assert_allclose(Kernel(function=Matern(nu=1.5))(x, x), Matern(nu=1.5)(x))
    with pytest.raises(
        ConfigurationError, match="no gradient here; for the decoder choose one of gaussian"
    ):
        Kernel("cosine").pull_back(x, np.eye(5))


def test_the_median_heuristic_ignores_equal_rows():
    rows = np.array([[0.0, 0], [0, 0], [3, 4], [0, 1]])
    assert median_bandwidth(rows) == np.median([5, 5, 1, 1, np.sqrt(18)])
    assert with_bandwidth(Kernel("laplacian"), "median", rows).bandwidth == np.median([7, 7, 1, 1, 6])
    assert median_bandwidth(np.zeros((3, 2))) == 1
    assert with_bandwidth(Kernel("linear"), "median", rows) == Kernel("linear")
