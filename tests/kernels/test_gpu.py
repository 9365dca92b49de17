"""On a GPU: the integers of the CPU. `pytest -m gpu` where there is one; the same bodies run on NumPy in other tests."""

import numpy as np
import pytest
from drawing import small_images

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels import device
from smtdist.kernels.codes import encode
from smtdist.models.fit import fit
from smtdist.models.transform import transform

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not device.gpu_available(), reason="no CUDA device with CuPy"),
]

SETTINGS = {
    "gq": Configuration(patch=4, dictionary=120, n_components=8, threshold=0.4, flip=True),
    "gq-window": Configuration(
        patch=4, dictionary=120, n_components=8, context=2, order=2, zero_code="activate_best"
    ),
    "vq": Configuration(
        patch=4, feature="vq", context=2, dictionary=64, n_components=8, constant_patch="activate_best"
    ),
    "vq-whole": Configuration(
        patch=4,
        feature="vq",
        dictionary=64,
        n_components=8,
        dictionary_method="spherical",
        dictionary_rounds=2,
    ),
}


@pytest.fixture(params=SETTINGS)
def pair(request):
    """A fit on the GPU and one held to the CPU."""
    images = small_images(3, 300, 14, 13, 3)
    model, _ = fit(as_source(images), SETTINGS[request.param], Engine(SerialExecutor()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "gpu_available", lambda: False)
        cpu, _ = fit(as_source(images), SETTINGS[request.param], Engine(SerialExecutor()))
    return images, model, cpu


def test_statistics_are_the_same_integers(pair):
    _, gpu, cpu = pair
    np.testing.assert_array_equal(gpu.whitening.whiten, cpu.whitening.whiten)
    np.testing.assert_array_equal(gpu.dictionary.grid, cpu.dictionary.grid)
    for name in ("activity", "second_moment", "context_scatter", "cooccurrence"):
        np.testing.assert_array_equal(
            getattr(gpu.statistics, name), getattr(cpu.statistics, name), err_msg=name
        )


def test_codes_are_the_same_bits(pair):
    images, gpu, _ = pair
    on_gpu, on_cpu = (encode(to(images), gpu.encoder, True) for to in (device.to_device, np.asarray))
    np.testing.assert_array_equal(device.to_host(on_gpu.indptr), on_cpu.indptr)
    np.testing.assert_array_equal(device.to_host(on_gpu.indices), on_cpu.indices)


def test_representations_agree_to_rounding(pair):
    images, gpu, _ = pair
    on_gpu = dict(transform(gpu, as_source(images), Engine(SerialExecutor())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "gpu_available", lambda: False)
        on_cpu = dict(transform(gpu, as_source(images), Engine(SerialExecutor())))
    for first, values in on_gpu.items():
        np.testing.assert_allclose(values, on_cpu[first], atol=1e-5)
