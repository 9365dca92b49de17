"""A manifold transform on L1 codes: its sums by brute force, its constraint, the same bits anywhere, its representation."""

from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from drawing import small_images
from executors import LossyExecutor, ThreadsExecutor

from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError
from smtdist.models.coders.features import features_of
from smtdist.models.coders.manifold import ManifoldSettings, fit_manifold
from smtdist.models.sparse.files import load_any, load_sparse, save_sparse
from smtdist.models.sparse.fit import fit_sparse
from smtdist.models.sparse.settings import SparseSettings
from smtdist.statistics.float_codes import FloatCodeSums
from smtdist.statistics.patch_rows import PatchRows

WANTED = ManifoldSettings(n_components=5, positions=12, stride=2, pool_size=2, pool_stride=1)


@pytest.fixture(scope="module")
def coder():
    settings = SparseSettings(units=20, patch=4, patches=3, rounds=2, penalty=0.5)
    return fit_sparse(ArraySource(small_images(0, 600, 12, 10)), settings, Engine(SerialExecutor()))[0]


@pytest.mark.parametrize("sparse", [True, False])
def test_sums_are_those_over_pairs_of_positions(sparse):
    rng = np.random.default_rng(0)
    codes = np.maximum(rng.standard_normal((4, 6, 5)) - 0.5, 0)
    codes[1, 2] = codes[3, :4] = 0
    statistic = FloatCodeSums(PatchRows((9, 9, 1), 3, 6, 0.0, 0), SimpleNamespace(n_codes=5, sparse=sparse))
    state = statistic.zero()
    statistic.add(state, codes[:2])
    statistic.add(state, codes[2:])
    scatter, second, n = np.zeros((5, 5)), np.zeros((5, 5)), 0
    for image in codes:
        kept = [a for a in image if a.any()]
        n += len(kept)
        second += sum(np.outer(a, a) for a in kept)
        for i, a in enumerate(kept):
            scatter += sum((np.outer(a - b, a - b) for b in kept[i + 1 :]), np.zeros((5, 5)))
    np.testing.assert_allclose(state["context_scatter"], scatter, atol=1e-10)
    np.testing.assert_allclose(state["second_moment"], second, atol=1e-10)
    np.testing.assert_allclose(state["activity"], codes.sum(axis=(0, 1)))
    assert state["n_positions"] == n


@pytest.mark.parametrize("moment", ["second", "centred"])
def test_an_embedding_keeps_its_constraint_and_has_the_same_bits_anywhere(coder, moment):
    images, found = small_images(1, 600, 12, 10), set()
    for executor in (SerialExecutor(1), SerialExecutor(3), ThreadsExecutor(4), LossyExecutor(1)):
        engine = Engine(executor)
        model, _ = fit_manifold(ArraySource(images), coder, WANTED.replace(moment=moment), engine)
        found.add(model.components.tobytes() + features_of(model, ArraySource(images[:40]), engine).tobytes())
    assert len(found) == 1
    assert (np.diff(model.eigenvalues) >= 0).all()
    statistic = FloatCodeSums(
        PatchRows((12, 10, 1), 4, 12, coder.settings.contrast_bias, 0, coder.mean, coder.whiten),
        coder,
    )
    state = statistic.zero()
    statistic.update(state, images, 0)
    count = int(state["n_positions"])
    mean = state["activity"] / count
    v = state["second_moment"] / count - (np.outer(mean, mean) if moment == "centred" else 0)
    np.testing.assert_allclose(model.components @ v @ model.components.T, np.eye(5), atol=1e-6)


def test_a_representation_is_pooled_embeddings_of_unit_length(coder):
    images = small_images(2, 30, 12, 10)
    model, _ = fit_manifold(ArraySource(images), coder, WANTED, Engine(SerialExecutor()))
    z = model.represent(images[:3])
    assert model.grid == (5, 4)
    assert z.shape == (3, 12, 5)
    lengths = np.linalg.norm(z, axis=2)
    assert np.allclose(lengths[lengths > 0], 1, atol=1e-5)
    # the window at the top left: positions (0, 0), (0, 2), (2, 0), (2, 2)
    rows = coder.rows(images[:1]).reshape(9, 7, -1)[[0, 0, 2, 2], [0, 2, 0, 2]]
    beta = coder.infer(rows)[0] @ model.components[:5].T
    norms = np.linalg.norm(beta, axis=1, keepdims=True)
    beta = np.divide(beta, norms, where=norms > 0, out=np.zeros_like(beta))
    wanted = beta.mean(axis=0) / max(np.linalg.norm(beta.mean(axis=0)), 1e-12)
    np.testing.assert_allclose(z[0, 0], wanted, atol=1e-4)


def test_what_cannot_be_embedded_is_refused(coder):
    source = ArraySource(small_images(3, 30, 12, 10))
    with pytest.raises(ConfigurationError, match="moment is 'third'"):
        ManifoldSettings(moment="third")
    with pytest.raises(ConfigurationError, match="There is no setting 'colour'"):
        WANTED.replace(colour=1)
    with pytest.raises(ConfigurationError):
        fit_manifold(source, coder, WANTED.replace(n_components=21), Engine(SerialExecutor()))
    model, _ = fit_manifold(source, coder, WANTED, Engine(SerialExecutor()))
    with pytest.raises(ModelError, match="give images like those"):
        model.represent(np.zeros((1, 5, 5), np.uint8))


def test_a_file_holds_all_of_it(coder, tmp_path):
    images = small_images(4, 40, 12, 10)
    model, _ = fit_manifold(ArraySource(images), coder, WANTED, Engine(SerialExecutor()))
    save_sparse(model, tmp_path / "m.h5")
    again = load_any(tmp_path / "m.h5")
    assert again.settings == model.settings
    np.testing.assert_array_equal(again.represent(images[:3]), model.represent(images[:3]))
    np.testing.assert_array_equal(load_sparse(tmp_path / "m.h5").atoms, coder.atoms)
    with h5py.File(tmp_path / "m.h5", "r+") as file:
        del file["embedding/eigenvalues"]
    with pytest.raises(ModelError, match="not a whole sparse coder"):
        load_any(tmp_path / "m.h5")
