"""What a batch takes on a device stays within what is planned for it, and is no small part of that."""

import numpy as np
import pytest
from measured import peak_of

from smtdist.kernels.device import PRODUCTS_VARIABLE, place
from smtdist.kernels.gpu.memory import POOL_ROUNDING
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Encoder, Geometry, Sampling, Whitener
from smtdist.kernels.whitening import atoms_to_grid, integer_whitening, threshold_cut
from smtdist.statistics.cooccurrence import CodeSums

IMAGES = 4


def sums(
    feature, context, order, threshold, mean="context", n_atoms=300, sampling=None, ridge=None, flip=False
):
    """On images of 16 x 16 x 3 with 169 patches of 48 numbers each."""
    geometry = Geometry(16, 16, 3, 4)
    whiten = integer_whitening(np.eye(48))
    scale, sampling = pixel_scale(np.uint8, None), sampling or Sampling()
    whitener = Whitener(geometry, scale, False, mean, 2, None, 1.0, whiten, sampling, ridge)
    atoms = atoms_to_grid(np.random.default_rng(0).normal(size=(n_atoms, 48)))
    encoder = Encoder(
        whitener, atoms, feature, threshold_cut(threshold, 48), True, "leave_out", "leave_out"
    )
    return CodeSums(encoder, context, order, flip, 1000)


CASES = {
    "gq": sums("gq", "whole", 1, 0.2),
    "gq dense codes": sums("gq", "whole", 1, 0.01),
    "gq of few atoms": sums("gq", "whole", 1, 0.2, "patch", 16),
    "gq in windows": sums("gq", 2, 1, 0.2),
    "gq of second order": sums("gq", 2, 2, 0.2),
    "gq of second order, whole": sums("gq", "whole", 2, 0.2),
    "gq on a stride": sums("gq", "whole", 1, 0.2, sampling=Sampling(2)),
    "gq of drawn patches": sums("gq", "whole", 1, 0.2, sampling=Sampling(1, 40)),
    "gq, each image whitened": sums("gq", "whole", 1, 0.2, ridge=1e6),
    "gq, each image whitened, and mirrored": sums("gq", "whole", 1, 0.2, ridge=1e6, flip=True),
    "gq of drawn patches, each image whitened": sums(
        "gq", "whole", 1, 0.2, sampling=Sampling(1, 40), ridge=1e6
    ),
    "vq": sums("vq", "whole", 1, 0.2),
    "vq in windows": sums("vq", 2, 1, 0.2),
}


@pytest.mark.parametrize("products", ["float32", "int8"])
@pytest.mark.parametrize("name", CASES)
def test_a_batch_takes_what_is_planned(fake_cupy, monkeypatch, name, products):
    """A plan does not know the worker's card, and counts products of both kinds."""
    monkeypatch.setenv(PRODUCTS_VARIABLE, "float32" if products == "float32" else "")
    statistic = CASES[name]
    images = np.random.default_rng(1).integers(0, 256, (IMAGES, 16, 16, 3), dtype=np.uint8)
    state = {key: place(value) for key, value in statistic.zero().items()}
    statistic.update(state, images[:1], 0)
    peak = peak_of(lambda: statistic.update(state, images, 0))
    planned = statistic.device_batch_bytes(IMAGES)
    print(f"{name}: {peak / 2**20:.2f} of {planned / 2**20:.2f} MiB")
    assert peak <= planned
    if products == "float32":
        assert peak >= (planned - POOL_ROUNDING) / 9
