"""Concepts from the command line: asked and drawn, and found by workers."""

import re
import sys

import h5py
import numpy as np
import pandas as pd
import pytest
from arrays_in_files import add_arrays, write_arrays
from calling import refused, run, told
from data_sets import embedded, independent

from smtdist.models import store

FIVE = "--model concepts --set n_concepts=5 --set rank=5 --quiet"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("table") / "x.h5"
    S = independent(rng, 300, 5)
    write_arrays(path, {"z": embedded(rng, S, 8, 20).astype(np.float32)}, chunks=(64, 8))
    return path, S


@pytest.fixture(scope="module")
def found(table):
    """A file of five concepts, and what its search said."""
    out = table[0].with_name("concepts.h5")
    return out, told("fit", table[0], FIVE, "--set penalty=0 --out", out)


def test_concepts_are_searched(found):
    out, said = found
    assert said["n_concepts"] == 5
    assert said["cka"] > 0.97
    S = store.load(out).concepts
    want = np.flatnonzero(S[:, 1] & (1 - S[:, 0]))
    assert told("search", out, "'has concept 1 and not 0'")["points"] == want.tolist()
    assert run("search", out, "'1 and not 0'").split() == [str(point) for point in want]


def test_npy_files_and_wrong_usage(table, found, tmp_path):
    out, csv = tmp_path / "n.h5", tmp_path / "x.csv"
    np.savetxt(csv, table[1], delimiter=",", header="a,b,c,d,e", comments="")
    for line in (f"fit {csv} {FIVE}", f"fit {csv} --model points", f"import {csv}"):
        said = run(line, "--out", out, code=1)
    exec(re.search(r"numpy\.save.*\)\)", said)[0], {"numpy": np, "pandas": pd})
    run("fit", tmp_path / "x.npy", FIVE, "--set method=rejection --out", out)
    assert store.load(out).cka == pytest.approx(1, abs=1e-6)
    fit = ["fit", table[0], FIVE, "--out", tmp_path / "o.h5"]
    refused([*fit, "--set method=guess"], tmp_path, "one of rejection", 2)
    refused(["search", found[0], "9"], tmp_path, "concepts 0 to 4", 2)
    refused(["search", table[0], "0"], tmp_path, "is not a file of concepts")
    S = store.load(out).concepts
    with h5py.File(out, "a") as file:
        del file.attrs["smtdist_checksums"]
    for wrong in (S[:0], S * 0, S + 1j):
        add_arrays(out, {"concepts": wrong})
        refused(["report", out, "--out", tmp_path / "r.html"], tmp_path, "is not a complete")


def test_points_are_drawn_by_name(found, tmp_path, monkeypatch):
    out, _ = found
    write_arrays(tmp_path / "names.h5", {"words": [f"w{i}" for i in range(300)], "few": ["w0"]})
    three = ["--figure", tmp_path / "three"]
    result = told("draw", out, f"w3 w7 11 --names {tmp_path}/names.h5:words", *three)
    assert result["points"] == [3, 7, 11]
    assert [file.read_bytes()[:4] for file in sorted(tmp_path.glob("three-*.png"))] == [b"\x89PNG"] * 2
    S = store.load(out).concepts
    for kind in result["kinds"]:
        for concept in kind["concepts"]:
            assert (S[[3, 7, 11], concept] ^ S[3, concept]).tolist() == kind["pattern"]
    assert "1 concept separating" in run("draw", out, "3 7 11 --overwrite", *three)
    for words, code, sentence in (
        (["w3 w7"], 2, "no point 'w3'"),
        (["3 3"], 2, "two different points"),
        ([f"1 2 --names {tmp_path}/names.h5:few"], 1, "does not hold 300 names"),
        (["1 2 --names names.h5"], 2, "FILE.h5:DATASET"),
        (["3 7 11", *three], 1, "exists already"),
    ):
        refused(["draw", out, *words], tmp_path, sentence, code)
    monkeypatch.setitem(sys.modules, "networkx", None)
    missing = "Analograms need networkx; install smtdist[analogram]."
    refused(["draw", out, "3 7 11 --figure", tmp_path / "none"], tmp_path, missing, 2)
