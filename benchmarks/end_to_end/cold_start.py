"""What `smtdist --help` takes beside `python -c "import numpy"`, as processes from start to end.

python -m benchmarks.end_to_end.cold_start --json results
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.contest import Outcome
from benchmarks.processes import watched
from benchmarks.record import write_record
from benchmarks.rows import row

HELP = "from smtdist.cli import main; main()"


def timed(*command: str) -> dict[str, Any]:
    """Run a process; return its times and its peak."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": 0,
        "added_bytes": 0,
        "facts": {},
    }


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    ours, floor = Outcome(), Outcome()
    for turn in range(options.repeats + 1):
        for outcome, command in ((ours, (HELP, "--help")), (floor, ("import numpy",))):
            answer = timed(*command)
            if turn:  # the first turn fills the cache of files
                outcome.take(answer)
    for outcome, command in ((ours, (HELP, "--help")), (floor, ("import numpy",))):
        # apart from the turns, for looking takes time too; the system's own figure includes what was there before exec
        outcome.peak_bytes = watched([sys.executable, "-c", *command])["peak_bytes"]
    result = row(
        "smtdist --help",
        ours,
        floor=('python -c "import numpy"', floor),
        asked="at most 2.5x importing NumPy",
    )
    print(result)
    if options.json:
        write_record(options.json, "cold-start", {"rows": [result]})
    return [result]


if __name__ == "__main__":
    main()
