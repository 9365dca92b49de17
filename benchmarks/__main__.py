"""All benchmarks by one command: kernels, end to end, scaling, peers; dated results, and the table made from them.

    python -m benchmarks                          everything that can run here
    python -m benchmarks --only kernels kmeans    groups or single benchmarks
    python -m benchmarks --tiny --out FOLDER      seconds instead of an hour, to see that all run
    python -m benchmarks --gpu                    those for a CUDA device
    python -m benchmarks --table                  write the table anew, measure nothing

Each benchmark runs in a process of its own. Data are looked for in `--data`, SMTDIST_DATA, or ../shared/data.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.contest import SideFailed
from benchmarks.floors import machine_floors
from benchmarks.record import write_record
from benchmarks.suite import BENCHES, Bench, data_folder
from benchmarks.table import GROUPS, PREFIX, around, write_table
from smtdist.errors import SmtdistError

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"


def chosen(only: list[str] | None) -> list[Bench]:
    """Return the benchmarks of the named groups, and the named ones."""
    wanted = {word.replace("_", "-") for word in only or []}
    groups = {group.replace(" ", "-"): group for group in GROUPS}
    unknown = wanted - set(groups) - {bench.name for bench in BENCHES}
    if unknown:
        names = ", ".join([*groups, *(bench.name for bench in BENCHES)])
        raise SystemExit(f"There is no benchmark {sorted(unknown)[0]!r}; choose among {names}.")
    return [
        bench
        for bench in BENCHES
        if not wanted or bench.name in wanted or bench.group.replace(" ", "-") in wanted
    ]


def run(
    bench: Bench, given: dict[str, str], folder: Path | None, tiny: bool, apart: bool
) -> list[dict[str, Any]]:
    """Run one benchmark, in a fresh process unless it is tiny."""
    if not apart:
        return bench.run(given, folder, tiny)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(bench.run, given, folder, tiny).result()


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 1 where a benchmark failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="groups or benchmarks")
    parser.add_argument("--gpu", action="store_true", help="those for a CUDA device")
    parser.add_argument(
        "--tiny", action="store_true", help="small sizes, made-up data, all in this process"
    )
    parser.add_argument("--data", help="folder of real data")
    parser.add_argument("--peer", help="checkout of as821/sparse-manifold-transform")
    parser.add_argument(
        "--repeats", type=int, help="turns of each; without it as many as each benchmark has"
    )
    parser.add_argument("--out", default=str(RESULTS), help="folder for the dated results")
    parser.add_argument(
        "--readme",
        type=Path,
        help="file for the table; without it only the results of the project have one",
    )
    parser.add_argument("--table", action="store_true", help="only write the table anew")
    options = parser.parse_args(arguments)
    benches = [] if options.table else chosen(options.only)
    if options.tiny and Path(options.out) == RESULTS:
        raise SystemExit("Tiny results are no results; give another folder by --out.")
    page = options.readme or (HERE / "README.md" if Path(options.out) == RESULTS else None)
    if page is not None:
        around(page)  # refused before anything is measured
    given = {"peer": options.peer} if options.peer else {}
    turns = ("--repeats", str(options.repeats)) if options.repeats else ()
    benches = [replace(bench, full=(*bench.full, *turns)) if bench.repeats else bench for bench in benches]
    failed = False
    for bench in benches:
        reason = bench.missing(given, options.gpu)
        if reason is not None:
            print(f"{bench.name}: left out, it {reason}", file=sys.stderr)
            continue
        started = time.perf_counter()
        try:
            rows = run(bench, given, data_folder(options.data), options.tiny, not options.tiny)
            floors = machine_floors(options.tiny)
        except (SideFailed, SmtdistError, SystemExit) as error:
            print(f"{bench.name}: failed: {error}", file=sys.stderr)
            failed = True
            continue
        result = {"group": bench.group, "rows": rows, "machine_floors": floors}
        path = write_record(options.out, f"{PREFIX}{bench.name}", result)
        print(f"{bench.name}: {time.perf_counter() - started:.0f} s, {path.name}", file=sys.stderr)
    if page is not None:
        write_table(Path(options.out), page)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
