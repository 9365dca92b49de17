"""A new kernel model with three settings and its file is this much code; all that handles models handles it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import smtdist
from smtdist.errors import ModelError
from smtdist.kernels.gram import Kernel
from smtdist.models.estimating import Estimator
from smtdist.models.kinds import KINDS
from smtdist.models.store import Array, Stored
from smtdist.models.summed import SumModel
from smtdist.report.checking import checked
from smtdist.report.facts import facts_of, looks_of
from smtdist.settings import Settings, described, number, one_of, setting


class DensitySettings(Settings):
    """Settings of a density."""

    OF = "densities"

    kernel: str = setting(one_of("gaussian", "laplacian"), "k(x, y).", default="gaussian")
    bandwidth: float = setting(number(above=0), "σ of the kernel.", default=1.0)
    ridge: float = setting(number(0), "added to every density.", default=0.0)


@dataclass(frozen=True, eq=False)
class Density(
    Stored,
    kind="density",
    of=DensitySettings,
    arrays={"rows": Array(("row", "input"), "rows of the fit"), "level": Array(("row",))},
):
    """The mean kernel value of a point beside the rows of a fit."""

    settings: DensitySettings
    rows: Any
    level: Any
    provenance: dict[str, Any] = field(default_factory=dict)

    def summary(self):
        """Return what a person asks for first."""
        return {"n_samples": len(self.rows), "highest": float(self.level.max())}


class DensityEstimator(Estimator, of=DensitySettings, run=()):
    """Densities of rows."""

    def fit(self, X, y=None):
        """Fit on rows."""
        settings, rows = self.configuration, np.asarray(X, np.float64)
        level = Kernel(settings.kernel, settings.bandwidth)(rows, rows).mean(axis=1) + settings.ridge
        self.model_ = Density(settings, rows, level)
        return self


@pytest.mark.parametrize("base", [Stored, SumModel])
def test_a_row_of_the_table_stays_as_it_is(base):
    row = KINDS["words"]
    type("Words", (base,), {}, kind="words")
    assert KINDS["words"] is row


def test_fit_settings_save_load_info_and_check(tmp_path):
    fitted = clone(DensityEstimator(bandwidth=0.5)).fit(np.random.default_rng(0).standard_normal((20, 3)))
    assert described(DensitySettings.declared())["bandwidth"]["meaning"] == "σ of the kernel."
    with pytest.raises(smtdist.SmtdistError, match="bandwidth is -1; it must be a number above 0"):
        DensityEstimator(bandwidth=-1).fit([[0.0]])
    path = tmp_path / "d.h5"
    assert fitted.save(path) == path.stat().st_size
    again = smtdist.load(path)
    assert again.settings == fitted.model_.settings
    assert (again.level == fitted.model_.level).all()
    facts = facts_of(path)
    assert (facts["kind"], facts["configuration"]["bandwidth"], facts["n_samples"]) == ("density", 0.5, 20)
    assert ("n samples", "20") in looks_of("density").readable(facts)
    assert [verdict.state for verdict in checked(path)] == ["whole"]
    path.write_bytes(path.read_bytes().replace(again.level.tobytes()[:8], b"\1" * 8))
    assert [verdict.state for verdict in checked(path)] == ["wrong"]
    with pytest.raises(ModelError, match=r"not a complete density model \(.*level fails its checksum"):
        smtdist.load(path)
