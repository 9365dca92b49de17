"""Do two trees give the same bits? `python -m benchmarks.same_bits --old COMMIT` on one machine.

The commands of `fits.FITS` run with the old tree and then with the new one: same data, interpreter and libraries. Every
array that they write is compared bit by bit. The exit code is 0 where all are the same, 1 where some differ or fail.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.same_bits.compare import LEFT_OUT, folder_differences
from benchmarks.same_bits.data import make_data
from benchmarks.same_bits.fits import FITS, TRANSLATIONS, Fit, chosen
from benchmarks.same_bits.trees import Failed, Tree, require_own, unpack

HERE = Path(__file__).resolve().parents[2]
"""The tree that this file is part of."""


def compared(fit: Fit, old: Tree, new: Tree, folder: Path) -> tuple[bool, str]:
    """Run a fit with both trees; return whether all bits are the same, and what to print."""
    started, remarks = time.perf_counter(), []
    for name, tree in (("old", old), ("new", new)):
        try:
            first = old if fit.begun_by_old else tree
            said = tree.run_fit(fit, folder / "work" / fit.name, first)
            (folder / "work" / fit.name).rename(folder / name / fit.name)
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            shutil.rmtree(folder / "work" / fit.name, ignore_errors=True)
            return False, f"{fit.name}: FAILED with the {name} tree\n    {error}"
        remarks += [f"the {name} run {one}" for one in said]
    count, differences = folder_differences(*(folder / name / fit.name for name in ("old", "new")))
    took = f"{time.perf_counter() - started:.1f} s"
    notes = "".join(f"; {one}" for one in remarks)
    if not count:
        return False, f"{fit.name}: FAILED, no array was written"
    if differences:
        return False, f"{fit.name}: DIFFERS ({took}{notes})\n" + "\n".join(
            f"    {one}" for one in differences
        )
    return True, f"{fit.name}: same ({count} arrays, {took}{notes})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two trees as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_bits", description=__doc__)
    old = parser.add_mutually_exclusive_group()
    old.add_argument("--old", metavar="COMMIT", help="commit of this repository to compare with")
    old.add_argument(
        "--old-tree", metavar="PATH", type=Path, help="folder of the old tree, where there is no git"
    )
    parser.add_argument(
        "--new", metavar="PATH", type=Path, default=HERE, help="folder of the new tree; this one"
    )
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="fits to run; all of them")
    parser.add_argument("--list", action="store_true", help="list the fits and what is not compared")
    chosen_ = parser.parse_args(arguments)
    if chosen_.list:
        for fit in FITS:
            print(fit.name, *(f"    smtdist {' '.join(command)}" for command in fit.commands), sep="\n")
        print("Not compared:", *(f"    {one}" for one in LEFT_OUT), sep="\n")
        return 0
    if chosen_.old is None and chosen_.old_tree is None:
        parser.error("--old COMMIT or --old-tree PATH is needed")
    try:
        fits = chosen(chosen_.only)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="same-bits-") as name:
        return _run(fits, chosen_.old, chosen_.old_tree, chosen_.new, Path(name))


def _run(fits: Sequence[Fit], commit: str | None, tree: Path | None, new: Path, folder: Path) -> int:
    if tree is None:
        tree = folder / "tree"
        try:
            print("old:", unpack(str(commit), HERE, tree), flush=True)
        except subprocess.CalledProcessError as error:
            print(f"There is no commit {commit}: {error.stderr}", file=sys.stderr)
            return 2
    for one in (tree, new):
        require_own(one)
    # both trees work in the same place, so that paths in files are the same too
    make_data(folder / "work" / "data")
    for name in ("old", "new"):
        (folder / name).mkdir()
    bad = 0
    with Tree(tree, TRANSLATIONS["old"]) as old, Tree(new, TRANSLATIONS["new"]) as changed:
        for fit in fits:
            same, said = compared(fit, old, changed, folder)
            print(said, flush=True)
            bad += not same
    print(f"{len(fits) - bad} of {len(fits)} fits are the same")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
