"""Codes by the kernels of the source, which run on the CPU, against the compiled bodies and the oracle."""

import numpy as np
import pytest

from smtdist.kernels import codes, context, whitening
from smtdist.kernels.device import PRODUCTS_VARIABLE, to_host
from smtdist.kernels.gpu import codes as gpu
from smtdist.kernels.gpu import proof, source

POLICIES = ("keep", "leave_out", "activate_best")


@pytest.fixture(params=["int8", "float32"])
def products(request, monkeypatch):
    """Codes from products of int8, and from those of float32."""
    if request.param == "float32":
        monkeypatch.setenv(PRODUCTS_VARIABLE, "float32")
    launched, launch = [], source.launch
    monkeypatch.setattr(gpu, "launch", lambda name, *given: (launched.append(name), launch(name, *given)))
    yield
    assert ("mark_dots" in launched) == (request.param == "float32")


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(("n", "k"), [(1, 1), (9, 31), (33, 32), (40, 33), (70, 140)])
@pytest.mark.parametrize("cosine", [0.1, 0.5, 0.99])
def test_codes_are_those_of_the_cpu(fake_cupy, monkeypatch, n, k, cosine):
    monkeypatch.setattr(gpu, "SLICE_BYTES", 40 * gpu.patch_bytes(k, 12))
    rng = np.random.default_rng(n)
    grid = np.ascontiguousarray(whitening.atoms_to_grid(rng.standard_normal((n, 12))).T)
    constant = rng.random(n) < 0.2
    grid[:, constant] = 0
    atoms = whitening.atoms_to_grid(rng.standard_normal((k, 12)))
    atoms[k // 2 :: 3] = atoms[0]  # ties
    cut = whitening.threshold_cut(cosine, 12)
    placed = [fake_cupy.asarray(x) for x in (grid, atoms, constant)]
    for constant_patch in POLICIES:
        for zero_code in POLICIES:
            wanted = codes.gq_codes(grid, atoms, cut, constant, constant_patch, zero_code)
            found = codes.gq_codes(placed[0], placed[1], cut, placed[2], constant_patch, zero_code)
            assert isinstance(found.indices, fake_cupy.ndarray)
            for name in ("indptr", "indices"):
                assert getattr(found, name).dtype == getattr(wanted, name).dtype
                np.testing.assert_array_equal(
                    fake_cupy.asnumpy(getattr(found, name)), getattr(wanted, name)
                )
            sites = fake_cupy.asnumpy(context.kept_mask(found, (1, 1, n)))
            np.testing.assert_array_equal(sites, context.kept_mask(wanted, (1, 1, n)))


@pytest.mark.usefixtures("products")
def test_atoms_whose_products_are_all_negative_are_the_best_too(fake_cupy):
    """A lane whose best is below zero must not lose to lanes that hold no atom."""
    grid = np.full((2, 3), 3, np.float32)
    atoms = np.array([[-9, -9], [-1, -1], [-2, -2]], np.float32)
    constant = np.zeros(3, bool)
    placed = [fake_cupy.asarray(x) for x in (grid, atoms, constant)]
    found = codes.gq_codes(placed[0], placed[1], 100, placed[2], "leave_out", "activate_best")
    assert fake_cupy.asnumpy(found.indices).tolist() == [1, 1, 1]


def marks(fake_cupy, patches, atoms, cut):
    """Which atoms (K, p) reach the cut in patches (n, p), by the kernel."""
    grid, rows = (fake_cupy.asarray(np.ascontiguousarray(x, np.float32)) for x in (patches.T, atoms))
    constant = fake_cupy.zeros(len(patches), bool)
    found = gpu.gq_codes(grid, rows, cut, constant, (False, False), 1)
    bits = np.unpackbits(to_host(found.bits.words).view(np.uint8), axis=1, bitorder="little")[
        :, : len(patches)
    ]
    np.testing.assert_array_equal(to_host(found.active), bits.sum(axis=0))
    return bits.T > 0


@pytest.mark.parametrize("pixels", [1, 31, 33, 108, 128, 129, 300])
def test_sums_at_the_limits_of_the_grid(fake_cupy, pixels):
    """Every number from -4,096 to 4,096 has two halves, and no sum of rows of length 4,096 is off by one."""
    draw = np.random.default_rng(pixels)
    rows = draw.integers(-4096, 4097, (37, pixels)).astype(float)
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    rows = np.trunc(rows * np.minimum(1, 4096 / np.maximum(length, 1)))
    rows[0], rows[1] = 0, 0
    rows[0, -1], rows[1, 0] = 4096, -4096
    dots = (rows @ rows.T).astype(np.int64)
    for cut in {*draw.choice(dots.reshape(-1), 4).tolist(), 2**24, -(2**24), 2**24 + 1, 2**31}:
        np.testing.assert_array_equal(marks(fake_cupy, rows, rows, cut), dots >= cut)


def test_halves(fake_cupy):
    """Every number from -4,096 to 4,096 is 128 high + low, both in int8, with zeros up to a whole step of pixels."""
    numbers = np.arange(-4096, 4097, dtype=np.float32).reshape(3, 2731)
    found = to_host(gpu.halves_of(fake_cupy.asarray(numbers), 31, 2700)).astype(int)
    assert found.shape == (2669, 2, 32)
    np.testing.assert_array_equal((128 * found[:, 0] + found[:, 1])[:, :3], numbers[:, 31:2700].T)
    assert not found[:, :, 3:].any()


def test_a_device_that_does_not_add_up_is_given_float32(fake_cupy, monkeypatch, caplog):
    monkeypatch.setattr(proof, "_found", {})
    assert gpu.by_tensor_cores(fake_cupy)
    monkeypatch.setattr(proof, "_found", {})
    monkeypatch.setattr(gpu, "_mark", lambda marks, *_: marks.words.fill(0))
    assert not gpu.by_tensor_cores(fake_cupy)
    assert "codes are made in float32" in caplog.text


def test_devices_without_these_products_are_given_float32(fake_cupy, monkeypatch):
    older = type("Device", (), {"compute_capability": "75", "id": 0})
    monkeypatch.setattr(fake_cupy.cuda, "Device", older)
    assert not gpu.by_tensor_cores(fake_cupy)
