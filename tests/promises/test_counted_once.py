"""A file that is named twice is refused, by whatever name: its samples would count twice without a word."""

import json
import os

import pytest

from smtdist.data import opening
from smtdist.data.manifest import describe_files, write_manifest
from smtdist.errors import DataError

SAID = "is named twice in"


def other_name(at, how):
    if how == "same":
        return "a.h5"
    if how == "dots":
        return "../at/./a.h5"
    os.symlink(at / "a.h5", at / "z.h5")
    return "z.h5"


@pytest.mark.parametrize("how", ["same", "dots", "link"])
def test_in_a_manifest(at, run, how):
    path = at / "all.json"
    made = describe_files([str(at / "a.h5"), str(at / "b.h5")], path, ["images"])
    made.content["files"].append({**made.content["files"][0], "path": other_name(at, how)})
    write_manifest(made)
    with pytest.raises(DataError, match=SAID):
        opening.open_source(path, "images")
    checked = run("manifest", path)
    assert (checked.exit_code, SAID in checked.stderr) == (1, True)


@pytest.mark.parametrize("how", ["same", "dots", "link"])
@pytest.mark.parametrize("kind", ["txt", "json", "arguments"])
def test_in_a_list(at, how, kind):
    names = ["a.h5", other_name(at, how)]
    data = [at / name for name in names]
    if kind != "arguments":
        data = at / f"list.{kind}"
        data.write_text("\n".join(names) if kind == "txt" else json.dumps(names))
    with pytest.raises(DataError, match=SAID):
        opening.open_source(data, "images")
