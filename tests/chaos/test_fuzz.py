"""Damaged files of every kind: a command ends in one sentence or succeeds; it never crashes, hangs or leaves things."""

import json
import os
import resource
import selectors
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ADDRESS_SPACE = 8 * 2**30
MOST_MEMORY = 256 * 2**20
"""By how much a command may grow over a file of a few kilobytes."""
SECONDS = 60
FIRST = int(os.environ.get("SMTDIST_FUZZ_FIRST", "10000"))
"""Number of the first of the two thousand cases."""


class Feeder:
    """A process that runs cases; it is started anew after a crash or a hang."""

    def __init__(self, folder):
        self._folder, self._starts = folder, 0
        self._process = None

    def run(self, number):
        if self._process is None:
            self._start()
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer is None:
            self._process.kill()
            code = self._process.wait()
            self.close()
            return {
                "number": number,
                "kind": "?",
                "code": code,
                "wrong": "crash or hang",
                "stderr": "",
                "grown": 0,
                "left": [],
            }
        return answer

    def close(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(30)
            self._process.stdout.close()
            self._process = None

    def _start(self):
        self._starts += 1
        folder = self._folder / str(self._starts)
        folder.mkdir()
        root = HERE.parents[1]
        environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests'}"}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "fuzz.py"), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
        )  # fmt: skip
        assert self._answer() == {"ready": True}

    def _answer(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(SECONDS):
                return None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None


def complaints(found):
    """Say what is wrong with how a command ended."""
    if found["wrong"]:
        yield found["wrong"]
    if found["code"] not in (0, 1):
        yield f"exit code {found['code']}"
    if found["code"] == 1:
        lines = found["stderr"].splitlines()
        sentences = [line for line in lines if line.startswith("smtdist: ")]
        if len(sentences) != 1 or sentences[0] != lines[-1] or not sentences[0].endswith("."):
            yield f"not one sentence: {found['stderr'][-500:]}"
    if "Traceback" in found["stderr"]:
        yield "a traceback"
    if found["grown"] > MOST_MEMORY:
        yield f"grew by {found['grown'] >> 20} MiB"
    if found["left"]:
        yield f"left {found['left']}"


def fuzz(numbers, folder):
    feeder = Feeder(folder)
    wrong, ended = [], Counter()
    for number in numbers:
        found = feeder.run(number)
        ended[found["kind"], found["code"]] += 1
        wrong.extend((number, found["kind"], complaint) for complaint in complaints(found))
    feeder.close()
    return wrong, ended


def test_a_few_damaged_files(tmp_path):
    wrong, ended = fuzz(range(80), tmp_path)
    assert not wrong
    assert sum(count for (_, code), count in ended.items() if code == 1) > 20, "most damage is noticed"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_damaged_files(tmp_path):
    wrong, ended = fuzz(range(FIRST, FIRST + 2000), tmp_path)
    print(sorted(ended.items()))
    assert not wrong
