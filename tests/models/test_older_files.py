"""Files of every kind as an earlier tree wrote them are read, and their sums grow and shrink to the integers they had."""

import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from arrays_in_files import read_array
from calling import run, told

from benchmarks.same_bits.data import make_data
from smtdist.models import kinds, store

FIXTURES = Path(__file__).parents[1] / "fixtures"
sys.path.insert(0, str(FIXTURES))

from make_models import KINDS, fit_in, integer_hashes, output  # noqa: E402

MODELS = sorted(path for path in (FIXTURES / "models").iterdir() if path.suffix in (".h5", ".csv"))
WHOLE_2 = sorted((FIXTURES / "whole-order-2").glob("*.h5"))
EXPECTED = {
    name: hashes
    for kind in KINDS
    for name, hashes in json.loads((FIXTURES / kind / "integer-sums.json").read_text()).items()
}
OPERATIONS = {name: command for _, operations in KINDS.values() for name, command in operations.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    at = tmp_path_factory.mktemp("older")
    make_data(at / "data")
    for path in MODELS + WHOLE_2:
        shutil.copy(path, at)
    return at


def test_fixtures_are_small():
    written = {output(command) for command in KINDS["models"][0]} | {"smt-packed.h5"}
    assert {path.name for path in MODELS} == written
    assert max(path.stat().st_size for path in MODELS + WHOLE_2) < 105_000  # two models side by side
    assert sum(path.stat().st_size for path in MODELS + WHOLE_2) < 1_500_000


def probabilities(path):
    if path.suffix == ".csv":
        return np.loadtxt(path, delimiter=",", skiprows=1)[:, 2:]
    return read_array(path, "probability")


@pytest.mark.parametrize("name", [path.name for path in MODELS + WHOLE_2])
def test_every_file_is_read(name, folder, tmp_path):
    if name.endswith(".csv"):
        assert len((folder / name).read_text().splitlines()) == 1 + 24
        return
    assert told("info", folder / name)
    kind = store.kind_at(folder / name)
    if kind in kinds.OF_IMAGES:
        which = {"joined.h5": "colour/images"}.get(name, "2/images")
        data = folder / "data/images.h5", "--dataset", which
    elif kinds.KINDS[kind].transformed_by == kinds.OF_ROWS:
        data = folder / "data/tables.h5", "--dataset", "more"
    elif kind == "words":
        assert "the" in run("near", folder / name, "cat")
        return
    elif name == "head-landmarks.h5":
        # its features came of products of BLAS, and so the sums agree but for the last bits
        run("update", folder / name, folder / "rows-1.h5", "--out", tmp_path / "more.h5")
        run("withdraw", tmp_path / "more.h5", folder / "rows-1.h5", "--out", tmp_path / "less.h5")
        for now, before in (("more", "head-updated"), ("less", "head-withdrawn")):
            with h5py.File(tmp_path / f"{now}.h5") as new, h5py.File(folder / f"{before}.h5") as old:
                for which in ("moment_high", "counts"):
                    np.testing.assert_array_equal(new[f"sums/{which}"], old[f"sums/{which}"])
        return
    elif kind == "head":
        assert told("evaluate", folder / name, folder / "rows-1.h5")["n_test"] == 24
        if name in ("head-exact.h5", "head-updated.h5"):
            exact = name == "head-exact.h5"
            rows, before = ("rows-1.h5", "predictions.h5") if exact else ("rows-0.h5", "predictions.csv")
            now, as_text = tmp_path / before, "" if exact else "--csv"
            run("transform", folder / name, folder / rows, as_text, "--out", now)
            np.testing.assert_allclose(probabilities(now), probabilities(folder / before), atol=1e-5)
        return
    elif kind == "concepts":
        told("search", folder / name, "'1 and not 0'")
        return
    else:
        return
    run("transform", folder / name, *data, "--out", tmp_path / "z.h5", "--quiet")
    with h5py.File(tmp_path / "z.h5") as file:
        assert np.isfinite(file["z"][()]).all()
        if name == "smt-gq.h5":
            np.testing.assert_allclose(
                file["z"][()], read_array(folder / "representation.h5", "z"), atol=1e-5
            )


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_sums_grow_and_shrink_to_the_same_integers(operation, folder, monkeypatch):
    monkeypatch.chdir(folder)
    # models of words had no command of their own for that
    words = OPERATIONS[operation].replace("words --model words.h5 --merge", "merge words.h5")
    run(*words.split(), "--out", f"{operation}.h5")
    assert integer_hashes(Path(f"{operation}.h5")) == EXPECTED[operation]


def test_a_fit_that_was_stopped_goes_on_to_the_same_integers(tmp_path):
    """Its sums are in the checkpoint, of weights on the grid of the tree that began it."""
    shutil.copytree(FIXTURES / "whole-order-2" / "checkpoint", tmp_path / "checkpoint")
    store.save(fit_in(tmp_path / "checkpoint"), tmp_path / "m.h5")
    assert integer_hashes(tmp_path / "m.h5") == EXPECTED["checkpoint"]
