"""How benchmarks of patch coders choose dampings, and go on where they stopped."""

import numpy as np
import pytest
from arrays_in_files import write_labelled
from sklearn.datasets import load_digits

from replication.s3c import dampings, labels, timing
from smtdist.evaluate.few_labels import standardised
from smtdist.kernels.spike_slab import SpikeSlab

FAST = ["--set", "rounds=2", "--set", "patch=3", "--set", "images=100"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "digits.h5"
    bunch = load_digits()
    images, wanted = (bunch.images * 15).astype(np.uint8), bunch.target
    return str(write_labelled(path, images[:260], wanted[:260], {"train": 200, "test": 60}))


def test_a_search_of_dampings_finds_what_costs_less():
    assert dampings.until([0.0, 5.0, 4.0, 6.0], 4.5) == 4
    assert dampings.until([5.0, 4.0], 4.5) is None
    assert dampings.crossing([0.0, 4.0, 8.0], 5.0) == 2.25
    assert dampings.crossing([0.0, 4.0], 5.0) > dampings.NEVER - 1
    assert dampings.until([np.nan, 5.0], 4.5) == dampings.crossing([np.nan, 5.0], 4.5) == 2
    assert dampings.until([5.0, np.nan], 4.5) is None
    values, least = dampings.searched(
        lambda values, least: float(((values - 0.5) ** 2).sum()), [np.full(6, 1.0), np.full(6, 0.9)], 400
    )
    assert least < 0.05
    assert least == ((values - 0.5) ** 2).sum()


def test_a_set_that_is_not_reached_takes_for_ever():
    ready = {way: {"iterations": [3, 4, None], "crossing": 3.5, "damping": []} for way in timing.WAYS[:3]}
    seconds = [[2.0, 4.0, np.inf], [1.0, 3.0, np.inf], [1.0, np.inf, np.inf]]
    found = timing._best(ready, dict(zip(ready, seconds, strict=True)))
    assert set(found) == {"blocks", "fixed"}
    assert (found["blocks"]["over_fixed"], found["fixed"]["over_blocks"]) == (4 / 3, 0.75)
    assert found["fixed"]["products"] == [11, 15, None]
    assert found["blocks"]["quartiles"] == [2.5, 3.5]


def test_dampings_of_a_way_are_a_ramp_and_go_on_as_they_end():
    numbers = (0.1, 0.5, 0.5, 0.9, 0.2, 0.6, 1.0, 0.4)
    ramp = dampings.Way("blocks").ramp(numbers, 5)
    np.testing.assert_allclose(ramp, [0.1, 0.3, 0.5, 0.5, 0.5, 0.9, 0.3, 0.4, 0.5, 0.6, 0.4])
    np.testing.assert_allclose(dampings.Way("conjugate", 1).ramp(numbers, 5), ramp[:5])
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((20, 6)).astype(np.float32)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    ones = np.ones(20, np.float32)
    model = dampings.Padded(SpikeSlab(atoms, ones, ones, -ones, 3 * ones[:6]))
    rows = rng.standard_normal((2, 4, 6)).astype(np.float32)
    for way in timing.WAYS:
        few = way.ramp(numbers, 3)
        curves = way.curves(rows, model, few, 5)
        assert curves.shape == (2, 5)
        np.testing.assert_array_equal(curves[:, :3], way.curves(rows, model, few))
        assert (np.diff(curves) != 0).all()


def test_a_sweep_goes_on_where_it_stopped(digits, tmp_path):
    asked = [
        "--data", digits, "--units", "12", "--pooling", "2", "--labels", "10", "--draws", "2", "--models", "s3c",
        *FAST, "--work", str(tmp_path / "w"),
    ]  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        labels.main([*asked, "--minutes", "0"])
    assert stopped.value.code == 3
    found = labels.main(asked)
    assert labels.main([*asked, "--minutes", "0"]) == found
    with pytest.raises(SystemExit, match="holds steps of other options"):
        labels.main([*asked, "--units", "13"])


def test_one_scale_keeps_the_ratios_of_features():
    rows = np.random.default_rng(0).normal(size=(50, 4)) * [1, 2, 4, 8]
    (each,), (one,) = standardised(rows), standardised(rows, each=False)
    assert each.std(axis=0) * 2 == pytest.approx(np.ones(4), rel=0.1)
    assert one.std(axis=0) / rows.std(axis=0) == pytest.approx(
        np.full(4, one.std(axis=0)[0] / rows.std(axis=0)[0])
    )
    assert (one**2).sum() == pytest.approx(50, rel=0.05)
