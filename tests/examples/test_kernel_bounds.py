"""The terms of the theory: Theorem 2's condition by numbers, Theorems 6 and 7, the downstream bound."""

import math

import numpy as np
import pytest
from kernel_models import reference_kernels as ref

from examples.kernel_bounds import downstream_terms, generalisation_terms, representer_condition
from smtdist.errors import ConfigurationError
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.contrastive import contrastive, given_triplets
from smtdist.models.kernel.estimators import ContrastiveKernel, KernelAutoencoder, SpectralContrastiveKernel

# many of these fits are cut short
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((30, 3))


def test_theorem_2_holds_exactly_as_long_as_eigenvalues_are_positive():
    """Definition 1 in coordinates: the condition fails from the first negative eigenvalue on."""
    generator = np.random.default_rng(1)
    x, plus, minus = (generator.standard_normal((6, 3)) for _ in range(3))
    _, spectrum = contrastive(Kernel("linear"), given_triplets(x, plus, minus), 1)
    form = x.T @ (minus - plus)
    form = (form + form.T) / 2

    def loss(weights):
        return float(np.vdot(weights, form @ weights)), 2 * form @ weights

    assert 1 <= spectrum.n_positive < 3
    for components in (1, 2, 3):
        found = representer_condition(loss, 3, components)
        assert found.holds == (components <= spectrum.n_positive)
        wanted = -np.maximum(spectrum.eigenvalues[:components], 0).sum()
        np.testing.assert_allclose(found.loss, wanted, atol=1e-6)
    assert found.smallest < 0.1


def test_theorem_2_fails_for_a_loss_with_its_bottom_inside(rows):
    found = representer_condition(lambda w: (float(((w - 0.1) ** 2).sum()), 2 * (w - 0.1)), 4, 1)
    assert not found.holds
    np.testing.assert_allclose(found.smallest, 0.2, atol=1e-4)
    with pytest.raises(ConfigurationError, match="n_components is 5, but the data span 4 dimensions"):
        representer_condition(lambda w: (0.0, w), 4, 5)


def test_theorem_6_for_the_contrastive_model(rows):
    model = ContrastiveKernel(2, kernel="polynomial", degree=2).fit(rows).model_
    terms = generalisation_terms(model, 0.1)
    parts = np.split(model.encoder.rows, 3)
    features = [ref.mapped(part, "polynomial") for part in parts]
    alpha = sum(math.sqrt(2 * (part**2).sum()) for part in features)
    kappa = max((part**2).sum(axis=0).max() for part in features)
    np.testing.assert_allclose(
        [terms["omega"], terms["alpha"], terms["kappa"]], [math.sqrt(2), alpha, kappa], rtol=1e-5
    )
    np.testing.assert_allclose(terms["complexity"], 2 * math.sqrt(kappa) * alpha / 30, rtol=1e-5)
    np.testing.assert_allclose(terms["slack"], 2 * kappa * math.sqrt(math.log(10) / 30), rtol=1e-5)


@pytest.mark.parametrize("negatives", ["all", "one"])
def test_theorem_6_for_the_spectral_model(rows, negatives):
    fitted = SpectralContrastiveKernel(1, kernel="linear", negatives=negatives, ridge=2.0).fit(rows)
    model = fitted.model_
    terms = generalisation_terms(model)
    weights = model.encoder.rows.T @ model.encoder.coefficients
    omega = np.linalg.norm(weights)
    np.testing.assert_allclose(terms["omega"], omega)
    np.testing.assert_allclose(terms["penalty"], 2 * omega**2)
    np.testing.assert_allclose(terms["complexity"], omega**3 * terms["kappa"] ** 1.5 * terms["alpha"] / 30)
    np.testing.assert_allclose(
        terms["slack"], omega**4 * terms["kappa"] ** 2 * math.sqrt(math.log(20) / 30)
    )


def test_theorem_7(rows):
    fitted = KernelAutoencoder(2, decoder_kernel="polynomial", degree=2, ridge=0.3, max_iterations=20).fit(
        rows
    )
    model = fitted.model_
    terms = generalisation_terms(model)
    second = ref.mapped(model.decoder.rows, "polynomial") @ model.decoder.coefficients
    np.testing.assert_allclose(terms["omega_2"], np.linalg.norm(second), rtol=1e-6)
    np.testing.assert_allclose(terms["gamma"], 4, rtol=1e-6)  # (1 + 1)²
    np.testing.assert_allclose(terms["complexity"], terms["omega_2"] * 2 / math.sqrt(30), rtol=1e-6)
    assert terms["penalty"] == pytest.approx(0.3 * (terms["omega_1"] ** 2 + terms["omega_2"] ** 2))


def test_the_downstream_bound_and_what_it_bounds():
    generator = np.random.default_rng(3)
    labels = np.arange(60) % 3
    centres = 4 * generator.standard_normal((3, 4))
    rows = centres[labels] + 0.3 * generator.standard_normal((60, 4))
    model = ContrastiveKernel(2, noise=0.3).fit(rows).model_
    found = downstream_terms(model, rows, labels)
    assert found["collision"] == pytest.approx(1 / 3)
    assert found["c1"] == pytest.approx(1.5)
    # by all triples of rows: anchor, positive of its class, negative of any
    z = model.embed(rows)
    products = z @ z.T
    same = labels[:, None] == labels
    wanted = products.mean() - (products * same).sum(axis=1).mean() / 20
    np.testing.assert_allclose(found["unsupervised"], wanted)
    # Σ over negatives of the anchor's class is zero, so that the rest is (1 - τ) of the supervised loss
    np.testing.assert_allclose(found["supervised"], found["c1"] * found["unsupervised"])
    assert found["supervised"] <= found["bound"]
