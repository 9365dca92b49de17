"""Matrices that are never whole in memory, and the solve with a factor in files, against LAPACK and the tiles in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from measured import peak_of

from smtdist.errors import CheckpointError, ConfigurationError, InterruptedRun, ModelError
from smtdist.solve import blocks
from smtdist.solve.blocks import BlockFiles, factor_bytes, factored, read_block, write_block
from smtdist.solve.generalized import smallest_components, smallest_components_of_tiles
from smtdist.solve.pencil import Means, disk_bytes, streamed_bytes
from smtdist.solve.streamed import Streamed
from smtdist.solve.tiled import Unsuitable
from tests.solve.test_tiles import falling, posed, spd


def streamed(matrix: np.ndarray, height: int) -> Streamed:
    size = len(matrix)
    heights = [min(height, size - at) for at in range(0, size, height)]
    starts = np.cumsum([0, *heights])
    return Streamed(
        heights, lambda index: matrix[starts[index] : starts[index + 1], starts[index] :].astype(float)
    )


def means(folder: Path, height: int) -> Means:
    return Means(lambda size: BlockFiles(folder, size, height))


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_streamed_matrix_is_the_matrix(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    matrix = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-50, 50, (size, size))
    matrix = matrix + matrix.T
    kept = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    if not len(kept):
        kept = np.arange(size)
    part, found = (
        matrix[np.ix_(kept, kept)],
        streamed(matrix, data.draw(st.integers(1, 31))).of(kept),
    )
    block = np.arange(3.0 * len(kept)).reshape(-1, 3)
    assert len(found) == len(kept)
    np.testing.assert_array_equal(found.product(block), part @ block)
    np.testing.assert_array_equal(found.diagonal(), np.diagonal(part))
    start = data.draw(st.integers(0, len(kept) - 1))
    stop = data.draw(st.integers(start + 1, len(kept)))
    np.testing.assert_array_equal(found.panel(start, stop), part[start:stop, start:])


@pytest.mark.parametrize("height", [1, 7, 20, 40, 64])
def test_the_factor_in_files_is_lapacks(height: int, tmp_path: Path) -> None:
    moment = spd(40)
    factor = factored(streamed(moment, 9), BlockFiles(tmp_path, 40, height))
    assert factor is not None
    upper = scipy.linalg.cholesky(moment)
    inverse = np.linalg.inv(upper)
    block = np.arange(80.0).reshape(40, 2)
    np.testing.assert_allclose(factor.back_substituted(block), inverse @ block, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(factor.forward_substituted(block), inverse.T @ block, rtol=1e-8, atol=1e-8)
    assert factor.back_substituted(block.astype(np.float32)).dtype == np.float32
    rows = [factor.inverse_rows(index) for index in range(factor.files.count)]
    whole = np.vstack([np.hstack([np.zeros((len(row), 40 - row.shape[1])), row]) for row in rows])
    np.testing.assert_allclose(whole, inverse, atol=1e-9)
    stored = sum(path.stat().st_size - 132 for path in tmp_path.glob("*.npy"))
    assert stored == factor_bytes(40, height)


def test_a_matrix_without_a_factor_has_none(tmp_path: Path) -> None:
    moment = np.diag([1.0, 1.0, -1.0, 1.0])
    assert factored(streamed(moment, 2), BlockFiles(tmp_path, 4, 2)) is None
    moment[1, 1] = np.nan
    with pytest.raises(ModelError, match="not finite"):
        factored(streamed(moment, 2), BlockFiles(tmp_path / "..", 4, 2))


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("height", [64, 4096])
def test_all_ways_give_one_solution(diagonal: bool, height: int, tmp_path: Path) -> None:
    scatter, moment = falling(300), spd(300)
    dead = np.array([5, 77])
    moment[dead] = moment[:, dead] = scatter[dead] = scatter[:, dead] = 0
    weights = np.diagonal(moment).copy()
    expected = smallest_components(scatter, weights if diagonal else moment, 10)
    given = weights if diagonal else streamed(moment, 50)
    found = smallest_components_of_tiles(streamed(scatter, 50), given, 10, means=means(tmp_path, height))
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(found.components, expected.components, atol=1e-5)
    np.testing.assert_array_equal(found.dead, expected.dead)
    assert found.rank == 298
    assert found.residuals.max() < 1e-7
    assert sum(1 for _ in tmp_path.glob("*.npy")) == (0 if diagonal else {64: 15, 4096: 1}[height])


def test_a_null_space_is_said(tmp_path: Path) -> None:
    scatter, moment = falling(200), spd(200)
    moment[7] = moment[8]
    moment[:, 7] = moment[:, 8]
    moment[7, 7] = moment[8, 8]
    folder = tmp_path / "a"
    folder.mkdir()
    with pytest.raises(Unsuitable, match="null space"):
        smallest_components_of_tiles(
            streamed(scatter, 64), streamed(moment, 64), 5, means=means(folder, 64)
        )
    assert not folder.exists(), "what cannot be used is not left behind"
    with pytest.raises(ConfigurationError, match="span only"):
        smallest_components_of_tiles(streamed(scatter, 64), np.ones(200), 201, means=means(tmp_path, 64))


def test_a_stopped_factor_goes_on_where_it_was(tmp_path: Path) -> None:
    moment, asked = spd(64), list[int]()
    made = streamed(moment, 8)

    def stop() -> None:
        if (tmp_path / "factor-0002-0007.npy").exists():
            raise InterruptedRun("Stopped as asked.", 130)

    with pytest.raises(InterruptedRun):
        factored(made, BlockFiles(tmp_path, 64, 8, stop))

    def panel(index: int) -> np.ndarray:
        asked.append(index)
        return moment[8 * index : 8 * index + 8, 8 * index :].copy()

    factor = factored(Streamed([8] * 8, panel), BlockFiles(tmp_path, 64, 8))
    assert factor is not None
    assert min(asked) == 3
    upper = scipy.linalg.cholesky(moment)
    np.testing.assert_allclose(factor.back_substituted(upper), np.eye(64), atol=1e-10)


def test_a_full_disk_and_a_damaged_block_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = BlockFiles(tmp_path, 8, 4)
    files.write((0, 0), np.ones((4, 4)))

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(blocks.np, "save", full)
        with pytest.raises(CheckpointError, match="free space"):
            files.write((0, 1), np.ones((4, 4)))
    assert [path.name for path in tmp_path.iterdir()] == ["factor-0000-0000.npy"]
    whole = tmp_path / "factor-0000-0000.npy"
    whole.write_bytes(whole.read_bytes()[:150])
    with pytest.raises(CheckpointError, match="solve again"):
        files.read((0, 0))


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_stated_peak_and_disk_hold(diagonal: bool, tmp_path: Path) -> None:
    size, height = 2000, 256
    scatter, moment = posed(size)
    if diagonal:
        scatter, moment = falling(size), np.eye(size)
    given = np.diagonal(moment).copy() if diagonal else streamed(moment, 64)
    peak = peak_of(
        lambda: smallest_components_of_tiles(
            streamed(scatter, 64), given, 10, means=means(tmp_path, height)
        )
    )
    assert (
        0.3 * size * height * 8
        < peak
        <= streamed_bytes(size, diagonal, 10, height) - 6 * 8 * (512 - 64) * size
    )
    written = sum(path.stat().st_size for path in tmp_path.glob("*.npy"))
    assert written <= disk_bytes(size, diagonal, height) + 132 * len(list(tmp_path.glob("*.npy")))


def test_a_flipped_bit_of_a_block_is_noticed_or_changes_nothing(tmp_path):
    block, path = np.random.default_rng(0).standard_normal((3, 2)), tmp_path / "factor-0000-0000.npy"
    write_block(path, block)
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            found = read_block(path)
        except OSError:
            continue
        np.testing.assert_array_equal(found, block)
