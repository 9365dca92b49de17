"""The unit disc: what figure 2 shows, over seeds; and P by mini-batches beside the eigenvectors (supplement C).

python -m replication.functional.disc --seeds 3 --json results
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.record import write_record
from examples.unit_disc import FUNCTIONALS, disc_landmarks, fit_disc, judged, moving_points
from replication.functional.common import engine
from smtdist.data.array import ArraySamples
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.sgd import fit_sgd, orthogonalised, participation


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("landmarks", 300), ("sequences", 10000), ("functions", 100), ("seeds", 3), ("rounds", 100), ("batch", 768),
        ("steps", 20),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sparsity", type=float, nargs="+", default=[3.0, 6.0])
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    runs = []
    for seed in range(options.seeds):
        started = time.perf_counter()
        landmarks, paths = disc_landmarks(options.landmarks, seed), moving_points(options.sequences, seed)
        model, _ = fit_disc(paths, landmarks, engine())
        found = judged(model.solution.components, landmarks, functions=options.functions, seed=seed)
        row: dict[str, Any] = {
            "seed": seed,
            "zernike_cosine": min(found["zernike_cosines"]),
            "angular_share": min(found["angular_share"][10:]),
            "spacing": found["landmark_spacing"],
            "one_sparse": found["one_sparse"],
            "four_sparse": found["four_sparse"],
            "seconds": time.perf_counter() - started,
        }
        if seed == 0 and options.rounds:
            row["sgd"] = _sgd(model, paths, options)
        runs.append(row)
        print(row, flush=True)
    result = {"landmarks": options.landmarks, "sequences": options.sequences, "runs": runs}
    if options.json:
        write_record(options.json, "functional-disc", result)
    return result


def _sgd(model: Any, paths: Any, options: Any) -> list[dict[str, Any]]:
    """Return objective over that of the eigenvectors, and support, of P learned by mini-batches."""
    sums, analytic = model.means, model.solution
    best = float(analytic.eigenvalues.sum())
    source = ArraySamples(np.ascontiguousarray(paths))
    rows = [{"start": "eigenvectors", "objective": 1.0, "support": _support(analytic.components, sums)}]
    runs: list[tuple[str, Any, float]] = [("random", None, 0.0)]
    runs += [
        (start, P, s)
        for s in options.sparsity
        for start, P in (("eigenvectors", analytic.components), ("random", None))
    ]
    for start, P, sparsity in runs:
        settings = FunctionalSettings(
            n_components=FUNCTIONALS,
            n_epochs=options.rounds,
            sgd_batch=options.batch,
            sgd_steps=options.steps,
            sparsity=sparsity,
            second_moment="second",
        )
        learned, _ = fit_sgd(source, model.features, engine(), settings, start=P)
        reached = orthogonalised(learned.components, sums.moment)
        objective = float(np.vdot(reached @ sums.scatter, reached)) / best
        rows.append(
            {
                "start": start,
                "sparsity": sparsity,
                "objective": objective,
                "support": _support(reached, sums),
            }
        )
    return rows


def _support(components: Any, sums: Any) -> float:
    return float(participation(components, sums.mean).mean())


if __name__ == "__main__":
    main()
