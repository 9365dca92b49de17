"""Runs commands of the command line in one process, each in its own folder: imports and compiled kernels are paid for once.

Started as a script with one tree on PYTHONPATH; it takes JSON lines {"folder", "words"} and answers {"code", "said"}.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Sequence


def run(words: Sequence[str]) -> tuple[int, str]:
    """Run `python -m smtdist` with these words; return the exit code and the end of what it printed."""
    sys.argv = ["smtdist", *words]
    code = 0
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as said,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            runpy.run_module("smtdist", run_name="__main__", alter_sys=False)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            code = 1
            traceback.print_exc()
        said.seek(0)
        return code, said.read()[-800:]


def serve() -> None:
    """Run commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints, such as a worker, does not end up among the answers
    for line in sys.stdin:
        asked = json.loads(line)
        os.chdir(asked["folder"])
        code, said = run(asked["words"])
        answers.write(json.dumps({"code": code, "said": said}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
