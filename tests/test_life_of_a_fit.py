"""The page on the life of a fit names functions that a fit calls, in the order in which it calls each of them first."""

import re
import sys
from pathlib import Path

import pytest
from arrays_in_files import write_arrays
from drawing import small_images
from typer.testing import CliRunner

from smtdist.cli import app

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "life_of_a_fit.md").read_text()
STEP = re.compile(
    r"^(\d+)\. \*\*[\w ]+\.\*\* `(smtdist/[\w/]+\.py)`, `([\w.]+)`\. (.+(?:\n +.+)*)", re.MULTILINE
)
STEPS = STEP.findall(PAGE)


@pytest.fixture(scope="module")
def called(tmp_path_factory):
    """The functions that a small serial fit calls in its own thread, as (file, name), by their first calls."""
    folder, first, before = tmp_path_factory.mktemp("fit"), {}, sys.getprofile()
    write_arrays(folder / "d.h5", {"images": small_images(0, 60, 8, 8)})

    def profile(frame, event, argument):
        if event == "call":
            first.setdefault((frame.f_code.co_filename, frame.f_code.co_qualname))

    words = f"fit {folder}/d.h5 --dataset images --out {folder}/m.h5 --workers 0 --no-first-look"
    settings = "--set patch_size=3 --set n_atoms=16 --set n_components=4"
    sys.setprofile(profile)
    try:
        done = CliRunner().invoke(app, [*words.split(), *settings.split()])
    finally:
        sys.setprofile(before)
    assert done.exit_code == 0, done.output
    return [
        (Path(file).relative_to(ROOT).as_posix(), name)
        for file, name in first
        if Path(file).is_relative_to(ROOT / "smtdist")
    ]


def test_there_are_twelve_steps_of_at_most_three_sentences():
    assert [int(number) for number, *_ in STEPS] == list(range(1, 13))
    for number, _, _, text in STEPS:
        assert len(re.findall(r"[.!?](?=\s|$)", text)) <= 3, f"step {number}"


def test_a_fit_calls_the_function_of_each_step_in_this_order(called):
    named = [(file, name) for _, file, name, _ in STEPS]
    assert [one for one in named if one not in called] == []
    assert [one for one in called if one in named] == named
