"""Batches prepared by other processes are those prepared here, whatever becomes of the processes."""

import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from calling import same
from importing import contents, imported, jpeg, pixels, png, refused, tree

from smtdist.data.importers import prepare as helpers_module
from smtdist.data.importers import run as run_module
from smtdist.data.importers.items import BATCH_BYTES, Batch
from smtdist.data.importers.prepare import Helpers, Recipe, in_order, prepare


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(helpers_module, "FIRST_HERE", 0)
    monkeypatch.setattr(run_module, "BATCH_ITEMS", 16)


@pytest.fixture
def many(tmp_path):
    images = {name: [png(pixels(5 + n % 3, 6, 3)) for n in range(90)] for name in "abc"}
    return tree(tmp_path / "t", images)


def batches(count, size=20):
    return [
        Batch("a", 0, [png(pixels(size, size, 3)), jpeg(pixels(size, size, 3))], None) for _ in range(count)
    ]


def as_here(found, expected):
    assert bytes(np.ascontiguousarray(found.data)) == bytes(np.ascontiguousarray(expected.data))
    assert (found.lengths, found.sizes, found.items) == (expected.lengths, expected.sizes, expected.items)


PLAIN = Recipe(plain=True, shape=(20, 20, 3))
ENCODED = Recipe(plain=False)


@pytest.mark.parametrize("recipe", [PLAIN, ENCODED])
def test_they_come_in_order_and_as_prepared_here(recipe):
    given = batches(20)
    expected = [prepare(batch, recipe) for batch in given]
    count = 0
    for found, wanted in zip(in_order(iter(given), recipe, 3), expected, strict=True):
        as_here(found, wanted)
        count += 1
    assert count == 20


def test_a_batch_larger_than_others():
    noise = [png(pixels(1200, 1200, 3)) for _ in range(3)]
    assert len(noise[0]) > BATCH_BYTES
    given = [Batch("a", 0, [image], None) for image in noise]
    for found, image in zip(in_order(given, ENCODED, 2), noise, strict=True):
        assert found.data == image


def test_workers_make_no_difference(many, tmp_path):
    for layout, resize in (("encoded", None), ("plain", 5)):
        files = []
        for workers in (0, 1, 3):
            out = tmp_path / f"{workers}{layout}.h5"
            imported(many, out, workers=workers, layout=layout, resize=resize)
            files.append(out.read_bytes())
        assert files[0] == files[1] == files[2]


def test_pixels_are_encoded_by_helpers_too(tmp_path):
    images = pixels(100, 9, 8, 3)
    np.savez(tmp_path / "a.npz", images=images)
    for workers in (0, 2):
        imported(tmp_path / "a.npz", tmp_path / f"{workers}.h5", workers=workers, layout="encoded")
    same(contents(tmp_path / "0.h5"), contents(tmp_path / "2.h5"))


def test_their_errors_are_ours(many, tmp_path):
    bad = many / "c" / "0080.png"
    bad.write_bytes(bad.read_bytes()[:-20])
    refused(r"c/0080.png: the PNG image is cut short", many, tmp_path / "o.h5", workers=2)
    assert os.listdir(tmp_path) == ["t"]
    result = imported(many, tmp_path / "o.h5", workers=2, skip=True)
    assert (result.samples, result.skipped) == (269, 1)


def test_colour_after_grey_begins_anew(tmp_path):
    grey = [png(pixels(6, 6)) for _ in range(40)]
    root = tree(tmp_path / "t", {"a": grey, "b": [png(pixels(6, 6, 3))]})
    imported(root, tmp_path / "o.h5", workers=2, layout="plain", resize=6)
    assert contents(tmp_path / "o.h5")["images"].shape == (41, 6, 6, 3)


@pytest.mark.parametrize("survivors", [0, 1])
def test_batches_of_killed_helpers_are_prepared_here(survivors):
    given = batches(12)
    helpers = Helpers(ENCODED, 3)
    try:
        for process in helpers.processes[survivors:]:
            process.kill()
            process.wait()
        for batch in given:
            as_here(helpers.prepare(batch), prepare(batch, ENCODED))
    finally:
        helpers.close()


def test_where_no_process_can_be_started_this_one_works(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    given = batches(8)
    for found, batch in zip(in_order(given, ENCODED, 2), given, strict=True):
        as_here(found, prepare(batch, ENCODED))


def test_giving_up_ends_them(monkeypatch):
    started = []

    class Watched(Helpers):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.extend(self.processes)

    monkeypatch.setattr(helpers_module, "Helpers", Watched)
    found = in_order(itertools.cycle(batches(1)), ENCODED, 2)
    next(found)
    found.close()
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2


def test_they_end_with_the_driver_and_never_see_its_interrupts():
    script = (
        "import sys\n"
        "from smtdist.data.importers.prepare import Helpers, Recipe\n"
        "held = Helpers(Recipe(plain=False), 2)\n"
        "print(*(process.pid for process in held.processes), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        numbers = [int(word) for word in driver.stdout.readline().split()]
        assert len(numbers) == 2
        assert all(os.getsid(number) == number for number in numbers)
        driver.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(map(alive, numbers)):
        os.sched_yield()
    assert not any(map(alive, numbers))


def alive(number):
    """Whether a process runs; one that has ended but is not yet waited for by its new parent does not."""
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
