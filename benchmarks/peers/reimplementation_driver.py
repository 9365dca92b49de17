"""Runs in the peer's own environment, from its folder: its script, with a clock around what it sums.

python reimplementation_driver.py TIMES.json [arguments of scripts/calc_smt.py]

The data set class it takes from torchvision is replaced by one that reads the same images from a NumPy file.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def clocked(owner: Any, name: str, spent: dict[str, float]) -> None:
    """Add up the seconds of the calls of a function."""
    plain: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **settings: Any) -> Any:
        started, before = time.perf_counter(), os.times()
        try:
            return plain(*arguments, **settings)
        finally:
            after = os.times()
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - started
            cpu = sum(after[:4]) - sum(before[:4])
            spent[f"{name}_cpu"] = spent.get(f"{name}_cpu", 0.0) + cpu

    setattr(owner, name, call)


def main() -> None:
    """Run the peer's script."""
    times = Path(sys.argv.pop(1))
    folder = os.getcwd()
    sys.path[:0] = [folder, str(Path(folder, "src"))]
    import diff_op  # type: ignore[import-not-found]
    import manifold_embedding  # type: ignore[import-not-found]
    import matrix_utils  # type: ignore[import-not-found]

    spent: dict[str, float] = {}
    clocked(diff_op, "construct_diff_op", spent)
    clocked(manifold_embedding, "mx_inv_sqrt", spent)
    clocked(manifold_embedding.ManifoldEmbedLayer, "_get_inv_sqrt_cov", spent)
    clocked(manifold_embedding.ManifoldEmbedLayer, "_calc_inner", spent)
    del matrix_utils
    sys.argv[0] = str(Path(folder, "scripts", "calc_smt.py"))
    runpy.run_path(sys.argv[0], run_name="__main__")
    times.write_text(json.dumps(spent))


if __name__ == "__main__":
    main()
