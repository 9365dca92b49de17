"""A context that another package brings: only positions side by side in a row are neighbours."""

import json
from dataclasses import dataclass

import h5py
import numpy as np
import pytest
from brought import install, run
from drawing import small_images

from smtdist.statistics.limbs import exact
from smtdist.statistics.operators import require_order
from smtdist.testing import check_context


@dataclass(frozen=True)
class Rows:
    """Differences a - b of sites next to each other in a row (order 1), or 2 b - a - c of three (order 2, twice the scale)."""

    sites: int
    columns: int
    order: int

    def __post_init__(self):
        require_order(self.order)

    @property
    def scale(self):
        return self.order

    def own(self, codes):
        return codes.reshape(-1, codes.shape[2])

    def factors(self, codes, group):
        lattice = codes.reshape(len(codes), -1, self.columns, codes.shape[2])
        if self.order == 1:
            columns = lattice[:, :, :-1] - lattice[:, :, 1:]
        else:
            columns = 2 * lattice[:, :, 1:-1] - lattice[:, :, :-2] - lattice[:, :, 2:]
        columns = columns.reshape(-1, codes.shape[2])
        return columns, columns

    def row_numbers(self, size):
        return 2 * size


@pytest.mark.parametrize("order", [1, 2])
def test_it_gets_every_command(order, tmp_path, monkeypatch):
    check_context(Rows)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        for number, name in enumerate("ab"):
            file[f"{name}/images"] = small_images(number, 40, 9, 9)
    fit = "--set feature=l1 --set dictionary=8 --set patch=4 --set rounds=2 --set n_components=3"
    fit += f" --set context=rows --set order={order}"
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, tmp_path, "smtdist.contexts", "rows", f"{__name__}:Rows")
    plan = json.loads(run(f"plan d.h5 --dataset a {fit} --no-calibrate --json"))
    assert plan["passes"][-1]["name"] == "solve"
    run(f"fit d.h5 --dataset a {fit} --checkpoint c --out a.h5")
    run("resume c --overwrite")
    run("fit d.h5 --dataset b --from-model a.h5 --out b.h5")
    run("merge a.h5 b.h5 --out ab.h5")
    run("withdraw ab.h5 d.h5 --dataset b --out back.h5")
    run("report ab.h5 --out r.html")
    sums = []
    for name in ("a.h5", "back.h5"):
        with h5py.File(name) as file:
            high, low = (
                file[f"statistics/context_scatter_{one}"][()].astype(np.int64) for one in ("high", "low")
            )
            sums.append(exact(high, low))
    np.testing.assert_array_equal(*sums)
