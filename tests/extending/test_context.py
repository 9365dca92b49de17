"""Contexts, ours and one that another package brings: only positions side by side in a row are neighbours."""

from dataclasses import dataclass

import pytest
from arrays_in_files import write_arrays
from brought import install, lived
from calling import told
from drawing import small_images

from smtdist.errors import ConfigurationError
from smtdist.models.coders.contexts import OURS, require_context
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


@pytest.mark.parametrize("name", OURS)
def test_ours_are_named(name):
    assert name in told("settings l1")["settings"]["context_size"]["values"]
    with pytest.raises(ConfigurationError, match=f'"{name}"'):
        require_context("none")


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", [*OURS, "rows"])
def test_it_gets_every_command(name, order, tmp_path, monkeypatch):
    try:
        check_context({**OURS, "rows": Rows}[name], orders=(order,))
    except ConfigurationError:
        pytest.skip("has no such order")
    parts = {f"{name}/images": small_images(number, 40, 9, 9) for number, name in enumerate("ab")}
    write_arrays(tmp_path / "d.h5", parts)
    fit = "--set feature=l1 --set dictionary=8 --set patch=4 --set rounds=2 --set n_components=3"
    fit += f" --set context={name} --set order={order}"
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, tmp_path, "smtdist.contexts", "rows", f"{__name__}:Rows")
    lived(fit)
