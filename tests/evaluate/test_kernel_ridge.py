"""Kernel ridge regression on cosines, against its equations written out."""

import contextlib
import ctypes

import numpy as np
import pytest
from fake_cupy import install
from measured import on_threads, taken_by
from sklearn.kernel_ridge import KernelRidge as Peer

from smtdist.engine.plan import ALLOWANCE
from smtdist.errors import ConfigurationError, DataError
from smtdist.evaluate import few_labels, kernel_ridge
from smtdist.evaluate.cosine_rows import Comparer, Part, on_device, parts_of
from smtdist.evaluate.kernel_ridge import KernelTiles, fit_kernel_ridge
from smtdist.models.readout import Block, Columns

N, CLASSES = 240, 3


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def kernel_of(x, mirrored, y, y_mirrored, temperature):
    """All four pairs of an image and its mirror image (x, x') with another (y, y')."""

    def f(s):
        return np.exp((s - 1) / temperature)

    return f((x @ y.T + mirrored @ y_mirrored.T) / 2) + f((x @ y_mirrored.T + mirrored @ y.T) / 2)


@pytest.fixture(scope="module")
def images():
    """Features of two kinds, of images and of their mirror images, and labels; the last 40 are for judging."""
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(CLASSES, 12)), rng.integers(0, CLASSES, N)
    views = [(0.7 * centres[labels] + rng.normal(size=(N, 12))).astype(np.float32) for _ in range(2)]
    counts = [np.exp(view[:, :5]).astype(np.float32) for view in views]
    return views, counts, labels


def parts(images, chosen, mirrored=True):
    views, counts, _ = images
    both = [(*views, False), (*counts, True)]
    return [[Part(one[chosen], two[chosen] if mirrored else None, scaled) for one, two, scaled in both]]


def written_out(images, chosen):
    """Return the joined unit rows of images and mirror images, scaled by the first 200."""
    views, counts, _ = images
    train = np.concatenate([one[:200] for one in counts]).astype(np.float64)
    scaled = [unit((one[chosen] - train.mean(0)) / train.std(0)) for one in counts]
    return [
        np.hstack([unit(view[chosen]), count]) / 2**0.5 for view, count in zip(views, scaled, strict=True)
    ]


TRAIN, TEST = slice(0, 200), slice(200, N)


def test_the_kernel_is_that_of_all_four_pairs(images):
    sets = parts(images, TRAIN)
    comparer = Comparer.of(sets, 0.5)
    both = comparer.views(sets, slice(0, 200))
    found = comparer.kernel(both, both, np.empty((200, 200), np.float32))
    x, mirrored = written_out(images, TRAIN)
    expected = kernel_of(x, mirrored, x, mirrored, 0.5)
    np.testing.assert_allclose(found, expected, atol=5e-6)
    assert np.linalg.eigvalsh(found).min() > -1e-5
    # the two terms of one image alone are no kernel of anything
    half = np.exp((x @ x.T - 1) / 0.5) + np.exp((x @ mirrored.T - 1) / 0.5)
    assert np.abs(half - half.T).max() > 0.1


@pytest.mark.parametrize("direct", [4096, 50], ids=["decomposed", "iterated"])
def test_the_solution_is_that_of_scikit_learn(images, direct, monkeypatch):
    monkeypatch.setattr(kernel_ridge, "TOLERANCE", 1e-6)
    labels = images[2]
    fitted = fit_kernel_ridge(parts(images, TRAIN), labels[TRAIN], penalties=[0.05], direct=direct, rank=40)
    known, asked = written_out(images, TRAIN), written_out(images, TEST)
    gram = kernel_of(*known, *known, 0.5)
    targets = np.where(labels[TRAIN, None] == np.arange(CLASSES), 1.0, -1.0)
    peer = Peer(alpha=0.05 * np.diag(gram).mean(), kernel="precomputed")
    peer.fit(gram, targets - targets.mean(axis=0))
    expected = peer.predict(kernel_of(*asked, *known, 0.5)) + targets.mean(axis=0)
    decision = fitted.decision(parts(images, TEST))
    np.testing.assert_allclose(decision, expected, atol=1e-4)
    assert (fitted.predict(parts(images, TEST)) == expected.argmax(axis=1)).all()
    shares = fitted.probabilities(decision)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares.argmax(axis=1) == decision.argmax(axis=1)).all()


@pytest.mark.parametrize("direct", [4096, 50], ids=["decomposed", "iterated"])
@pytest.mark.parametrize("mirrored", [True, False])
def test_a_device_finds_what_the_host_finds(images, direct, mirrored, monkeypatch):
    monkeypatch.setattr(kernel_ridge, "TOLERANCE", 1e-6)
    monkeypatch.setattr(kernel_ridge, "tile_height", lambda n: 64)
    monkeypatch.setattr(kernel_ridge, "MOST_ROWS", 64)
    known, asked = (parts(images, chosen, mirrored) for chosen in (TRAIN, TEST))
    how = {"penalties": [0.3, 0.05, 0.01], "direct": direct, "rank": 40}
    host = fit_kernel_ridge(known, images[2][TRAIN], **how)
    expected = host.decision(asked)
    cupy = install(monkeypatch)
    tiles = []
    made = KernelTiles.made.__func__
    monkeypatch.setattr(
        KernelTiles, "made", classmethod(lambda *given: tiles.append(made(*given)) or tiles[-1])
    )
    found = fit_kernel_ridge(known, images[2][TRAIN], **how)
    assert all(isinstance(tile, cupy.ndarray) for tile in tiles[0].tiles)
    assert type(found.duals) is np.ndarray
    assert (found.penalty, found.how) == (host.penalty, host.how)
    np.testing.assert_allclose(found.duals, host.duals, atol=1e-3 * np.abs(host.duals).max())
    np.testing.assert_allclose(found.decision(asked), expected, atol=1e-4)
    broken = [[Part(one.rows.copy(), one.mirrored, one.standardise) for one in known[0]]]
    broken[0][0].rows[7, 3] = np.nan
    with pytest.raises(DataError, match=r"row 7: number 3 is nan"):
        found.comparer.views(on_device(broken, 50), slice(0, 20))
    cupy.cuda.runtime.memGetInfo = lambda: (1000, 2**37)  # others have its memory
    np.testing.assert_array_equal(host.decision(asked), expected)


def test_every_image_is_left_out_in_closed_form(images):
    labels = images[2][TRAIN]
    fitted = fit_kernel_ridge(parts(images, TRAIN), labels, penalties=[0.3, 0.01])
    x, mirrored = written_out(images, TRAIN)
    gram = kernel_of(x, mirrored, x, mirrored, 0.5)
    targets = np.where(labels[:, None] == np.arange(CLASSES), 1.0, -1.0)
    centred = targets - targets.mean(axis=0)
    for entry in fitted.path:
        shift = entry["penalty"] * np.diag(gram).mean()
        missed = []
        for image in range(200):
            kept = np.delete(np.arange(200), image)
            duals = np.linalg.solve(gram[np.ix_(kept, kept)] + shift * np.eye(199), centred[kept])
            missed.append(gram[image, kept] @ duals - centred[image])
        assert entry["error"] == pytest.approx(np.mean(np.square(missed)), abs=1e-4)
    assert fitted.penalty == min(fitted.path, key=lambda one: one["error"])["penalty"]


def test_several_models_are_added(images):
    sets = parts(images, TRAIN)
    twice = [sets[0][:1], sets[0][1:]]
    comparer = Comparer.of(twice, 0.5)
    views = comparer.views(twice, slice(0, 9))
    found = comparer.kernel(views, views, np.empty((9, 9), np.float32))
    one = [Comparer.of([part], 0.5) for part in twice]
    alone = [
        c.kernel(v, v, np.empty((9, 9), np.float32))
        for c, part in zip(one, twice, strict=True)
        for v in [c.views([part], slice(0, 9))]
    ]
    np.testing.assert_allclose(found, alone[0] + alone[1], atol=1e-6)


def test_threads_and_blocks_change_nothing_that_matters(images):
    known, labels = parts(images, TRAIN), images[2][TRAIN]
    found = []
    for count in (1, 3):
        with on_threads(count):
            found.append(fit_kernel_ridge(known, labels, direct=10, rank=20))
    assert (found[0].duals == found[1].duals).all()
    small = fit_kernel_ridge(known, labels, direct=10, rank=20, memory_bytes=2**16)
    assert (small.duals == found[0].duals).all()  # its tiles are files


@pytest.mark.parametrize("n", [2000, 3000])
def test_memory_is_as_planned(n):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2, n, 400)).astype(np.float32)
    known = [[Part(rows[0], rows[1])]]
    labels = rng.integers(0, 10, n)
    fit_kernel_ridge([[Part(rows[0, :300], rows[1, :300])]], labels[:300])  # what is loaded stays
    planned = kernel_ridge.planned_bytes(known, 10, 2**30)
    with contextlib.suppress(
        OSError, AttributeError
    ):  # free heap of earlier tests would be used again, and not be seen
        ctypes.CDLL(None).malloc_trim(0)
    taken = taken_by(lambda: fit_kernel_ridge(known, labels, penalties=[0.1, 0.01]))
    assert 0.25 * planned < taken <= planned + ALLOWANCE


class Read:
    """Rows that take memory when they are read, as those of a file do."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, chosen):
        return self.rows[chosen].copy()


@pytest.mark.parametrize(("n", "m"), [(2500, 100), (200, 6000)])
def test_few_labels_take_what_is_planned(n, m):
    """Many images that scale the features, or many to judge."""
    width, rng = 4096, np.random.default_rng(0)
    layout = [
        [
            Columns(Block("embedding", (width,)), 0, width),
            Columns(Block("codes", (width,)), 2 * width, 3 * width),
        ]
    ] * 2
    drawn = np.ascontiguousarray(np.broadcast_to(rng.random(4 * width, np.float32), (max(n, m), 4 * width)))
    drawn[:, ::50] = rng.random(drawn[:, ::50].shape, np.float32)
    known, asked = (parts_of(Read(drawn[:count]), layout) for count in (n, m))
    labels, wanted = np.arange(n) % 10, np.arange(m) % 10
    small = [parts_of(Read(drawn[:60]), layout)] * 2
    few_labels.kernel_sweep(
        small[0], labels[:60], small[1], labels[:60], [20], draws=1
    )  # what is loaded stays
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    planned = few_labels.kernel_sweep_bytes(known, asked, 10, [100], 4)
    taken = taken_by(lambda: few_labels.kernel_sweep(known, labels, asked, wanted, [100], draws=2))
    print(f"{taken / 2**20:.0f} of {planned / 2**20:.0f} MiB")
    assert 0.5 * planned < taken <= planned + ALLOWANCE


def test_files_of_the_kernel_are_no_memory(monkeypatch):
    """Mapped, they were: 7.1 GiB of 3.8 GiB projected for 50,000 images."""
    monkeypatch.setattr(kernel_ridge, "TILE_BYTES", 2**22)
    rng = np.random.default_rng(0)
    n = 7000
    known = [[Part(rng.normal(size=(n, 40)).astype(np.float32))]]
    labels = rng.integers(0, 3, n)
    fit_kernel_ridge([[Part(known[0][0].rows[:2000])]], labels[:2000], rank=20)  # what is loaded stays
    planned = kernel_ridge.planned_bytes(known, 3, 2**20, rank=20)
    assert planned + ALLOWANCE < 2 * n * n
    how = {"penalties": [10.0], "rank": 20, "memory_bytes": 2**20}
    assert taken_by(lambda: fit_kernel_ridge(known, labels, **how)) <= planned + ALLOWANCE


def test_a_kernel_in_a_folder_is_made_once(images, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_ridge, "TILE_BYTES", 4 * 64 * 200)
    known, labels = parts(images, TRAIN), images[2][TRAIN]
    seen = []
    whole = fit_kernel_ridge(known, labels, folder=tmp_path, progress=lambda done, every: seen.append(done))
    assert seen == sorted(seen)
    assert seen[-1] == 200 * 200
    # as if it had been killed in the third tile
    (tile,) = tmp_path.glob("kernel-*-128.npy")
    tile.rename(tile.with_suffix(".part"))
    seen.clear()
    again = fit_kernel_ridge(known, labels, folder=tmp_path, progress=lambda done, every: seen.append(done))
    assert len(seen) == 1
    assert (again.duals == whole.duals).all()
    other = fit_kernel_ridge(known, labels, folder=tmp_path, temperature=1.0)
    assert (other.duals == fit_kernel_ridge(known, labels, temperature=1.0).duals).all()


def test_tiles_multiply_as_the_whole():
    rng = np.random.default_rng(1)
    whole = rng.normal(size=(70, 70)).astype(np.float32)
    whole += whole.T
    tiles = KernelTiles.made(70, 32, lambda start, stop: whole[start:stop, start:].copy(), None)
    right = rng.normal(size=(70, 4))
    np.testing.assert_allclose(tiles.product(right), whole @ right, rtol=1e-4, atol=1e-4)
    assert (tiles.full() == whole).all()


def test_without_mirror_images_it_is_the_kernel_of_cosines(images):
    sets = parts(images, TRAIN, mirrored=False)
    comparer = Comparer.of(sets, 0.5)
    views = comparer.views(sets, slice(0, 50))
    found = comparer.kernel(views, views, np.empty((50, 50), np.float32))
    assert found.diagonal() == pytest.approx(1.0, abs=1e-5)
    assert (
        fit_kernel_ridge(sets, images[2][TRAIN]).predict(parts(images, TEST, False)) == images[2][TEST]
    ).mean() > 0.6


def test_what_cannot_be_compared_is_refused(images):
    known, labels = parts(images, TRAIN), images[2][TRAIN]
    ((first, second),) = known
    rows = first.rows.copy()
    rows[3, 2] = np.nan
    for error, said, data, how in (
        (DataError, "only one class", (known, np.zeros(200, int)), {}),
        (DataError, "features of the same images", ([[Part(first.rows[:9]), second]], labels), {}),
        (DataError, "to all parts or to none", ([[Part(first.rows), second]], labels), {}),
        (DataError, "row 3: number 2 is nan", ([[Part(rows)]], labels), {}),
        (DataError, "at least one part", ([], labels), {}),
        (ConfigurationError, "penalties are", (known, labels), {"penalties": [0.1, -1]}),
        (ConfigurationError, "choose one from", (known, labels), {"temperature": 1e-9}),
    ):
        with pytest.raises(error, match=said):
            fit_kernel_ridge(*data, **how)
    fitted = fit_kernel_ridge(known, labels)
    for said, other in (
        (r"without mirror images, and the others .* with them", parts(images, TEST, mirrored=False)),
        ("of the same kinds", [[first]]),
    ):
        with pytest.raises(DataError, match=said):
            fitted.decision(other)


class Counted:
    """Rows of a file that count how many of them were read."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype, self.read = rows, rows.shape, rows.dtype, 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, chosen):
        found = self.rows[chosen]
        self.read += len(found)
        return found


def test_rows_of_a_file_are_read_once_for_all_their_parts():
    """A chunk on disk holds whole rows, and two models with mirror images have eight parts: eight times the bytes were read."""
    rows = np.random.default_rng(0).normal(size=(300, 24)).astype(np.float16)
    layout = tuple(
        (
            Columns(Block("embedding", (3,)), start, start + 12),
            Columns(Block("codes", (3,)), start + 3, start + 15),
        )
        for start in (0, 6)
    )
    counted = Counted(rows)
    comparer = Comparer.of(parts_of(rows, layout), 0.5)
    for start, stop in ((0, 200), (200, 300)):
        read = comparer.views(parts_of(counted, layout), slice(start, stop))
        held = comparer.views(parts_of(rows, layout), slice(start, stop))
        np.testing.assert_array_equal(read, held)
    assert counted.read == 300
