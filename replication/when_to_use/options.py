"""Options that the comparisons of this folder share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path


def parser_of(prog: str, text: str | None, methods: Iterable[str], page: Path) -> argparse.ArgumentParser:
    """Return a parser with the options that all comparisons have; `page` shows their tables."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {prog}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    named = list(methods)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data")
    parser.add_argument("--work", type=Path, help="folder that keeps what is done")
    parser.add_argument("--only", nargs="+", choices=named, default=named, metavar="METHOD")
    parser.add_argument("--done", action="store_true", help="measure nothing: the rows of what is done")
    parser.add_argument("--test", type=int, default=10_000, help="test images at most")
    parser.add_argument("--draws", type=int, default=3, help="of few labels")
    parser.add_argument("--atoms", type=int, default=1600, help="of k-means")
    parser.add_argument("--cpu-seconds", type=float, help="of a network, in place of smtdist's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of smtdist")
    parser.add_argument("--seed", type=int, default=0, help="of all but smtdist, whose seed is 0")
    parser.add_argument("--seeds", type=int, default=5, help="of the CNN with all labels, from 0 on")
    parser.add_argument("--json", help="folder for the dated result")
    parser.add_argument(
        "--markdown", type=Path, metavar="RECORD", help="write a record's tables to the page"
    )
    parser.add_argument("--page", type=Path, default=page)
    return parser


def parsed(parser: argparse.ArgumentParser, words: list[str] | None) -> argparse.Namespace:
    """Return the options; measuring needs a folder."""
    asked = parser.parse_args(words)
    if asked.work is None and asked.markdown is None:
        parser.error("give --work FOLDER, or --markdown RECORD.")
    return asked
