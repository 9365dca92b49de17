"""A kind of samples that another package brings: windows of signals, which differ from those before and after them."""

import h5py
import numpy as np
import pytest
from arrays_in_files import write_arrays
from brought import install, lived
from calling import told

from smtdist import PointSMT
from smtdist.models.points.sites import SiteKind
from smtdist.settings import setting, whole
from smtdist.statistics.operators import Temporal
from smtdist.testing import check_sites


class Windows(SiteKind):
    """Overlapping windows of a signal, each without its mean."""

    NAME = "windows"

    length: int = setting(whole(1), "numbers of a window.", default=8)
    step: int = setting(whole(1), "numbers from one window to the next.", default=4)

    def rows(self, samples):
        signals = samples.astype(np.float64)
        found = np.lib.stride_tricks.sliding_window_view(signals, self.length, axis=1)[:, :: self.step]
        return found - found.mean(axis=2, keepdims=True)

    def operator(self, sites, order):
        return Temporal(order)


def signals(seed, n=60):
    rng = np.random.default_rng(seed)
    phase, pace = rng.uniform(0, 6, (n, 1)), rng.uniform(0.2, 0.4, (n, 1))
    return np.sin(phase + pace * np.arange(40)) + 0.05 * rng.standard_normal((n, 40))


def test_arrays_of_samples_are_embedded(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "smtdist.sites", "windows", f"{__name__}:Windows")
    samples = np.random.default_rng(0).normal(size=(50, 35))
    points = PointSMT(sites="windows", of_sites={"length": 10}, size=12)
    assert points.fit_transform(samples).shape == points.transform(samples).shape == (50, 7, 4)
    assert points.n_features_in_ == 35
    with pytest.raises(ValueError, match="X has 10 features, but PointSMT is expecting 35"):
        points.transform(samples[:, :10])


@pytest.mark.parametrize(("features", "order"), [pytest.param("l1", 2, marks=pytest.mark.slow), ("rbf", 1)])
def test_it_gets_every_command(features, order, tmp_path, monkeypatch):
    check_sites(Windows, signals(0), length=6, step=2)
    write_arrays(tmp_path / "d.h5", {"a": signals(1), "b": signals(2)})
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, tmp_path, "smtdist.sites", "windows", f"{__name__}:Windows")
    asked = (
        f"--model points --set sites=windows --set length=10 --set feature_map={features} --set size=12 "
        f"--set n_components=3 --set difference_order={order}"
    )
    lived(asked)
    assert told("info ab.h5")["configuration"]["of_sites"] == {"length": 10}
    with h5py.File("z.h5") as file:
        assert file["z"].shape == (60, 8 * 3)
        assert list(file.attrs["feature_shape"]) == [8, 3]
