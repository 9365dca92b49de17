"""On a GPU: the integers of the CPU. `pytest -m gpu` where there is one; the same bodies run on NumPy in other tests."""

import numpy as np
import pytest
from coded import encode
from drawing import small_images
from kernel_codes import check_other_sums, check_ways_to_count, device_settings, random_codes

from smtdist.data.array import as_source
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.kernels import device
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Encoder, Geometry, Whitener
from smtdist.kernels.whitening import atoms_to_grid, integer_whitening, threshold_cut
from smtdist.models.fit import fit
from smtdist.models.transform import transform
from smtdist.statistics.cooccurrence import CodeSums

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not device.gpu_available(), reason="no CUDA device with CuPy"),
]

SETTINGS = device_settings(120, 64, 8)


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


def test_representations_are_the_same_bits(pair):
    images, gpu, _ = pair
    on_gpu = dict(transform(gpu, as_source(images), Engine(SerialExecutor())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "gpu_available", lambda: False)
        on_cpu = dict(transform(gpu, as_source(images), Engine(SerialExecutor())))
    for first, values in on_gpu.items():
        np.testing.assert_array_equal(values, on_cpu[first])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [1, 700, 2050])
@pytest.mark.parametrize("share", [0.001, 0.02, 0.5])
def test_all_ways_to_count_pairs(share, rows, dtype):
    """K is no multiple of what tensor cores want, and takes several tiles and panels."""
    codes = random_codes(0, 3000, 2050, share)
    start = np.random.default_rng(1).integers(0, 99, (rows, 2050)).astype(dtype)
    check_ways_to_count(codes, start, device.to_device, device.to_host)


def test_the_other_sums():
    codes, images = random_codes(0, 3000, 300, 0.1), 30
    weights = np.random.default_rng(2).integers(-3, 9, 3000)
    check_other_sums(codes, weights, images, np.int32, device.to_device, device.to_host)


def test_batches_copied_ahead_arrive_as_they_were():
    rng = np.random.default_rng(3)
    batches = [(i, rng.integers(0, 256, (1 + i % 5, 512, 512), dtype=np.uint8)) for i in range(24)]
    with device.uploading() as ahead:
        found = [device.place(batch).astype(np.int64).sum(axis=(1, 2)) for _, batch in ahead(iter(batches))]
    for (_, batch), sums in zip(batches, found, strict=True):
        np.testing.assert_array_equal(device.to_host(sums), batch.sum(axis=(1, 2), dtype=np.int64))


def test_a_batch_takes_what_is_planned():
    """CuPy's pool, emptied first, holds at most what the plan says of a batch."""
    import cupy

    geometry = Geometry(32, 32, 3, 6)
    whitener = Whitener(
        geometry,
        pixel_scale(np.uint8, None),
        False,
        "context",
        2,
        None,
        1.0,
        integer_whitening(np.eye(108)),
    )
    atoms = atoms_to_grid(np.random.default_rng(0).normal(size=(2048, 108)))
    encoder = Encoder(whitener, atoms, "gq", threshold_cut(0.2, 108), True, "leave_out", "leave_out")
    statistic = CodeSums(encoder, "whole", 1, False, 1000)
    images = np.random.default_rng(1).integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)
    state = {name: device.to_device(value) for name, value in statistic.zero().items()}
    statistic.update(state, images[:1], 0)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.used_bytes()
    statistic.update(state, images, 0)
    assert pool.total_bytes() - before <= statistic.device_batch_bytes(64)
