"""What the promises are tried on: a few images, and a model of them."""

import shutil

import numpy as np
import pytest
from arrays_in_files import write_arrays
from typer.testing import CliRunner

from smtdist.cli import app


@pytest.fixture(scope="session")
def run():
    """Call the command line; the result has exit_code, stdout and stderr."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="session")
def images():
    return np.random.default_rng(0).integers(0, 256, (60, 7, 7), dtype=np.uint8)


@pytest.fixture(scope="session")
def made(tmp_path_factory, images, run):
    """A folder with a.h5, b.h5 and c.h5, 20 images each, and model.h5, which is fitted to those of a.h5."""
    folder = tmp_path_factory.mktemp("made")
    for number, name in enumerate("abc"):
        write_arrays(folder / f"{name}.h5", {"images": images[20 * number : 20 * number + 20]})
    settings = [word for text in ("patch=3", "dictionary=6", "n_components=2") for word in ("--set", text)]
    fit = run("fit", folder / "a.h5", "--dataset", "images", *settings, "--out", folder / "model.h5")
    assert fit.exit_code == 0, fit.output
    return folder


@pytest.fixture
def at(made, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(made, tmp_path / "at")
