"""Has a row the same code whatever rows come with it, and on any processor? The law under several kernels of OpenBLAS.

    python -m benchmarks.kernels.rows_alone --json results

Runs `tests/kernels/test_rows_alone.py` in a process of its own with no OPENBLAS_CORETYPE and with each of `CORE_TYPES`, and
states the kernel that threadpoolctl finds in that process. Codes that are ordered (`Features.ordered`) must have the same
bits in all of them, and where Numba compiles for another processor (NUMBA_CPU_NAME). The exit code is 1 where anything fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_info

from benchmarks.record import write_record
from smtdist.kernels import l1, products, sparse_codes
from smtdist.kernels.cpu.dictionary import processor_flags
from smtdist.kernels.products import library

CORE_TYPES: Final = (None, "Haswell", "SkylakeX", "Prescott")
PROCESSORS: Final = ("haswell", "skylake-avx512")
"""For which Numba compiles, beside the one at hand."""
NEEDS_AVX512: Final = ("SkylakeX", "skylake-avx512")
LAW: Final = Path(__file__).parents[2] / "tests/kernels/test_rows_alone.py"


class _Counter:
    """Counts what becomes of tests."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes.setdefault(report.outcome, []).append(report.nodeid.rpartition("::")[2])


def law() -> dict[str, Any]:
    """Run the law in this process, and return what became of it."""
    import pytest

    counter = _Counter()
    pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", str(LAW)], plugins=[counter])
    passed = len(counter.outcomes.pop("passed", []))
    return {"passed": passed, "failed": [], **counter.outcomes}


def digest() -> str:
    """Return a hash of ordered codes of rows that are always the same."""
    draw = np.random.default_rng(0)
    found = hashlib.blake2b(digest_size=16)
    for dtype in (np.float32, np.float64):
        for inputs, atoms in ((75, 48), (108, 300), (300, 77)):
            # whole numbers over a power of two: no function of NumPy or LAPACK makes them
            rows, dictionary = (
                (draw.integers(-99, 100, shape) / 128).astype(dtype)
                for shape in ((400, inputs), (inputs, atoms))
            )
            codes = [products.Ordered(dictionary)(rows), sparse_codes.omp_codes(dictionary, rows, 4)]
            codes += [
                l1.sparse_codes(dictionary, rows, 4.0, method=method, max_iterations=30)[0]
                for method in l1.METHODS
            ]
            for code in codes:
                found.update(np.ascontiguousarray(code).data)
    return found.hexdigest()


def _process(what: str, variable: str, value: str | None) -> dict[str, Any]:
    """Run a part of this module in a process of its own, with or without a variable of the environment."""
    if value in NEEDS_AVX512 and "avx512bw" not in processor_flags():
        return {variable: value, "left_out": "this processor has no AVX-512"}
    around = {name: text for name, text in os.environ.items() if name != variable}
    around |= {} if value is None else {variable: value}
    words = [sys.executable, "-m", "benchmarks.kernels.rows_alone", "--only", what]
    run = subprocess.run(words, env=around, capture_output=True, text=True)
    if run.returncode:
        return {variable: value, "failed": [run.stderr[-800:]]}
    return {variable: value, **json.loads(run.stdout.splitlines()[-1])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.rows_alone", description=__doc__)
    parser.add_argument("--json", metavar="FOLDER", help="write a dated record into this folder")
    parser.add_argument("--only", choices=("law", "codes"), help="run this part in this process")
    asked = parser.parse_args(arguments)
    if asked.only:
        found = law() if asked.only == "law" else {}
        about = {"library": library(), "blas": threadpool_info(), "codes": digest()}
        for one in about["blas"]:
            one["filepath"] = Path(one["filepath"]).name
        print(json.dumps(found | about))
        return 0
    runs = [_process("law", "OPENBLAS_CORETYPE", name) for name in CORE_TYPES]
    runs += [_process("codes", "NUMBA_CPU_NAME", name) for name in PROCESSORS]
    codes = {run["codes"] for run in runs if "codes" in run}
    good = len(codes) == 1 and not any(run.get("failed") for run in runs)
    for run in runs:
        print(json.dumps(run))
    print("all codes have the same bits" if good else "FAILED")
    if asked.json:
        print(write_record(asked.json, "rows-alone", {"good": good, "runs": runs}))
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
