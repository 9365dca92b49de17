"""How long the sums of a thousand workers take to meet: whole sums in a tree, or row tiles that meet side by side.

    python -m benchmarks.scaling.network_model --simulated SIMULATED.json --exchange EXCHANGE.json --json results

Symbols: W workers; K atoms; S bytes of a worker's sum, `arrays` K x K arrays of 8 bytes (3 for "gq" with left-out
patches, 2 without, 1 one-hot); b bytes a second of a worker's network, each way; c and a seconds to copy and to add a byte; n
tasks; d seconds that a task costs its worker beside its work; o seconds that a task takes of the scheduler or of the driver,
whichever needs more, one task at a time; m leaves; L = ceil(log2 W).

    leaves    T_leaves = max(work / W + (n / W) c S, n o) + (n / W) d + (work / m) r / 2, r = ceil(m / max(64, 16 W))
    tree      T_tree   = L (S / b + (c + a) S + d) + S / b
    tiles     T_tiles  = (1 - 1/P) q + (L - log2 P) q / P + o (W - 1) P + S / b, q = (1 / b + a) S, P a power of two
    efficiency         = (work / W) / (T_leaves + T_meeting)

Leaves: the driver hands on n tasks, about 8 W of them, for the first are large; half a last task, of r leaves, is lost on
average while the last ones end. A task copies the sum that it continues. Tree: each level, one side travels, the other is
copied (no input of a task is changed), and they are added. The last sum travels to the driver.

Tiles: a sum is kept as P panels of rows, each a key of its own that meets its like in a tree of its own, with its own
root. On level l there are P W / 2^l merges of S / P: all workers are busy as long as 2^l <= P, and a level takes
S / 2^l; then P are, and a level takes S / P. A panel that a worker made last is added to in place of a copy. With
P = W this is a reduce-scatter, in which each worker owns one tile of rows and sends and receives (1 - 1/W) S; it is the
(W - 1) P tasks that keep P small, so the best P is stated. A worker needs S and two panels, not 3 S.

`fit` takes d and o from simulated passes and c and a from an exchange of real sums; its residuals are in the record.
Work follows K in proportion (a measured time at K = 8,192): an understatement at K = 65,536, where codes are denser.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from benchmarks.scaling.simulated import IMAGENET, SECONDS_PER_PATCH

MEASURED_ATOMS = 8192


@dataclass(frozen=True)
class Constants:
    """What was fitted, in seconds and seconds a byte."""

    copy: float = 5e-10
    add: float = 5e-10
    task: float = 0.05
    driver: float = 0.005


@dataclass(frozen=True)
class Case:
    """A pass: how many workers, which sums, which network, how much work."""

    workers: int
    atoms: int
    gigabits: float
    side: int = 224
    arrays: int = 3
    leaves: int = 15_000
    images: int = IMAGENET
    patch: int = 6

    @property
    def tasks(self) -> int:
        """n."""
        return min(self.leaves, max(64, 8 * self.workers))

    @property
    def sum_bytes(self) -> int:
        """S."""
        return self.arrays * self.atoms**2 * 8

    @property
    def bandwidth(self) -> float:
        """b."""
        return self.gigabits * 1e9 / 8

    @property
    def work(self) -> float:
        """Seconds of one worker of two cores for all images."""
        positions = (self.side - self.patch + 1) ** 2
        return self.images * positions * SECONDS_PER_PATCH * self.atoms / MEASURED_ATOMS

    @property
    def levels(self) -> int:
        """L."""
        return max(0, self.workers - 1).bit_length()


def leaf_seconds(case: Case, constants: Constants) -> float:
    """Return T_leaves."""
    rounds = case.tasks / case.workers
    copies = rounds * constants.copy * case.sum_bytes
    streaming = max(case.work / case.workers + copies, case.tasks * constants.driver)
    return (
        streaming
        + rounds * constants.task
        + case.work / case.leaves * last_leaves(case.leaves, case.workers) / 2
    )


def last_leaves(leaves: int, workers: int) -> int:
    """Return r, the leaves of the smallest tasks."""
    return -(-leaves // max(64, 16 * workers))


def tree_seconds(case: Case, constants: Constants) -> float:
    """Return T_tree."""
    size, travel = case.sum_bytes, case.sum_bytes / case.bandwidth
    return case.levels * (travel + (constants.copy + constants.add) * size + constants.task) + travel


def tile_seconds(case: Case, constants: Constants, panels: int) -> float:
    """Return T_tiles for so many panels, a power of two up to 2^L."""
    whole = (1 / case.bandwidth + constants.add) * case.sum_bytes
    spread = (1 - 1 / panels) * whole + (case.levels - math.log2(panels)) * whole / panels
    handing = constants.driver * (case.workers - 1) * panels
    return spread + handing + case.sum_bytes / case.bandwidth


def best_panels(case: Case, constants: Constants) -> int:
    """Return the power of two that makes T_tiles least.

    >>> best_panels(Case(1000, 8192, 10), Constants(driver=0.0))
    1024
    """
    return min((1 << i for i in range(case.levels + 1)), key=lambda p: tile_seconds(case, constants, p))


def row_of(case: Case, constants: Constants) -> dict[str, Any]:
    """Return one line of the table."""
    leaves, tree = leaf_seconds(case, constants), tree_seconds(case, constants)
    panels = best_panels(case, constants)
    tiles, linear = tile_seconds(case, constants, panels), case.work / case.workers
    return {
        "workers": case.workers,
        "atoms": case.atoms,
        "gigabits": case.gigabits,
        "side": case.side,
        "linear_seconds": linear,
        "leaf_seconds": leaves,
        "tree_seconds": tree,
        "tile_seconds": tiles,
        "panels": panels,
        "tree_efficiency": linear / (leaves + tree),
        "tile_efficiency": linear / (leaves + tiles),
        "tree_worker_bytes": 3 * case.sum_bytes,
        "tile_worker_bytes": case.sum_bytes + 2 * case.sum_bytes // panels,
    }


def fit(
    simulated: list[dict[str, Any]], exchanged: list[dict[str, Any]]
) -> tuple[Constants, dict[str, Any]]:
    """Return the constants, and how far the model is from what they were fitted to.

    Copy and addition: seconds a byte of the largest exchange. Driver: processor seconds a task of the driver or the scheduler,
    whichever has more, of the run where that is least: heartbeats and reports, which follow time, are among them. Task: least
    squares of (seconds to the last leaf) - (sleep) - (half a last task) on n / W.
    """
    largest = max(exchanged, key=lambda run: run["sum_bytes"])
    rounds, wanted = [], []
    for run in simulated:
        costs, leaves = run["costs"], run["leaves"]
        n = run["tasks"]["accumulate"]
        copies = run.get("copies", leaves)  # the first records were made with a copy before every leaf
        slept = run["linear_seconds"] + copies * costs["copy"] / costs["factor"] / run["workers"]
        rounds.append(n / run["workers"])
        tail = run["leaf_seconds"] / costs["factor"] * last_leaves(leaves, run["workers"]) / 2
        wanted.append(run["seconds_to_last_leaf"] - slept - tail)
    x, y = np.array(rounds), np.array(wanted)
    task = max(0.0, float(x @ y / (x @ x)))
    busiest = [
        max(run["processor_ms_per_task"]["driver"], run["processor_ms_per_task"]["scheduler"])
        for run in simulated
    ]
    constants = Constants(
        copy=largest["copy_seconds"] / largest["sum_bytes"],
        add=largest["add_seconds"] / largest["sum_bytes"],
        task=task,
        driver=min(busiest) / 1000,
    )
    residuals = [
        {
            "workers": run["workers"],
            "measured_seconds_to_last_leaf": run["seconds_to_last_leaf"],
            "model_seconds": run["seconds_to_last_leaf"] - want + constants.task * per_worker,
            "end_merges_seconds": run["seconds_of_end_merges"],
            "end_merges_without_overhead": run["shortest_end"],
        }
        for run, want, per_worker in zip(simulated, wanted, rounds, strict=True)
    ]
    return constants, {
        "residuals": residuals,
        "loopback_bytes_per_second": largest["bytes_per_second_each"],
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw efficiency against workers, a panel for each K and network."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    kinds = sorted({(row["atoms"], row["gigabits"]) for row in rows})
    figure, axes = plt.subplots(1, len(kinds), figsize=(3.4 * len(kinds), 3.2), sharey=True, squeeze=False)
    for axis, (atoms, gigabits) in zip(axes[0], kinds, strict=True):
        mine = [row for row in rows if (row["atoms"], row["gigabits"]) == (atoms, gigabits)]
        for side, style in zip(sorted({row["side"] for row in mine}), ("--", "-"), strict=False):
            line = [row for row in mine if row["side"] == side]
            workers = [row["workers"] for row in line]
            for name, colour in (("tree", "tab:red"), ("tile", "tab:blue")):
                values = [row[f"{name}_efficiency"] for row in line]
                axis.semilogx(workers, values, style, color=colour, label=f"{name}s, {side} px")
        axis.axhline(0.9, color="0.7", linewidth=0.8)
        axis.set(title=f"K = {atoms:,}, {gigabits:g} Gbit/s", xlabel="workers", ylim=(0, 1.02))
    axes[0][0].set_ylabel("efficiency")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--simulated", nargs="+", required=True, help="records of benchmarks.scaling.simulated"
    )
    parser.add_argument(
        "--exchange", nargs="+", required=True, help="records of benchmarks.scaling.exchange"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 3, 10, 30, 100, 300, 1000, 3000])
    parser.add_argument("--atoms", type=int, nargs="+", default=[8192, 65_536])
    parser.add_argument("--gigabits", type=float, nargs="+", default=[10, 100])
    parser.add_argument("--side", type=int, nargs="+", default=[64, 224])
    parser.add_argument("--json", help="folder for the dated result and the plot")
    options = parser.parse_args(arguments)
    constants, fitted = fit(_runs(options.simulated), _runs(options.exchange))
    rows = [
        row_of(Case(workers, atoms, gigabits, side), constants)
        for atoms in options.atoms
        for gigabits in options.gigabits
        for side in options.side
        for workers in options.workers
    ]
    print("constants:", asdict(constants))
    print("     K Gbit/s   px workers  linear s  leaves s    tree s   tiles s panels  tree  tiles")
    for row in rows:
        print(
            f"{row['atoms']:6} {row['gigabits']:6g} {row['side']:4} {row['workers']:7} {row['linear_seconds']:9.0f} "
            f"{row['leaf_seconds']:9.0f} {row['tree_seconds']:9.1f} {row['tile_seconds']:9.1f} {row['panels']:6} "
            f"{row['tree_efficiency']:5.0%} {row['tile_efficiency']:6.0%}"
        )
    result = {"constants": asdict(constants), **fitted, "rows": rows}
    if options.json:
        path = write_record(options.json, "network-model", result)
        draw(rows, path.with_suffix(".png"))
    return result


def _runs(paths: list[str]) -> list[dict[str, Any]]:
    return [run for path in paths for run in json.loads(Path(path).read_text())["result"]["runs"]]


if __name__ == "__main__":
    main()
