"""Held-out clips: straightness of pixels, codes and embedding, reconstruction beside PCA, inference kept on course, topology.

python -m replication.functional.video --data video.h5 --folder /tmp/video --set whiten=zca --json results
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from examples.video_dictionary import dictionary_topology
from replication.functional.common import engine, rows_of, small_clips, split
from smtdist.configuration import parse_settings
from smtdist.models import store
from smtdist.models.functional.settings import FunctionalSettings
from smtdist.models.functional.sgd import fit_sgd, orthogonalised, participation
from smtdist.models.functional.video import fit_video
from smtdist.models.functional.video_judge import judged


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--held-out", nargs="+", default=["carphone_pristine", "cockatoo"])
    # slow pans over still photographs: what stands still is straight already, and would be all that is learned
    parser.add_argument("--leave-out", nargs="*", default=["nasa_13013"])
    parser.add_argument("--levels", type=int, default=1)
    parser.add_argument("--most", type=int, default=800)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--strength", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--recovery-penalty", type=float, nargs="+", default=[1e-3, 1e-2])
    parser.add_argument("--sgd-rounds", type=int, default=0)
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.03, 0.08])
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = FunctionalSettings().replace(**parse_settings(options.set))
    train, test = split(
        small_clips(options.data, folder, options.levels), options.held_out, options.leave_out
    )
    stored = (
        folder / f"{settings.whiten}-{settings.patch_size}-{settings.n_atoms}-{settings.n_components}.h5"
    )
    started = time.perf_counter()
    if not stored.exists():
        model, _ = fit_video(train, settings, engine())
        store.save(model, stored)
    fitted = time.perf_counter() - started
    model = store.load(stored)
    source = model.sequences(test)
    # every so many, so that all held-out clips are in it
    sequences, raw = (
        rows_of(model.sequences(test, raw=one))[:: max(1, source.n_samples // options.most)]
        for one in (False, True)
    )
    result: dict[str, Any] = {
        "settings": model.settings.to_json(),
        "levels": options.levels,
        "held_out": options.held_out,
        "summary": model.summary(),
        **judged(model, sequences, strengths=options.strength, penalties=options.recovery_penalty, raw=raw),
        "figure_4b": dictionary_topology(model),
        "fit_seconds": fitted,
    }
    if options.sgd_rounds:
        result["sgd"] = _sgd(model, train, settings, options)
    if options.json:
        rounds = "" if settings.max_iter == FunctionalSettings.max_iter else f"-rounds{settings.max_iter}"
        write_record(
            options.json,
            f"functional-video-{settings.whiten}-{settings.n_atoms}-{settings.n_components}{rounds}",
            result,
        )
    return result


def _sgd(model: Any, clips: Any, wanted: FunctionalSettings, options: Any) -> list[dict[str, Any]]:
    """Compare P learned by mini-batches, from a random start and from the eigenvectors, with the eigenvectors."""
    sums = model.means
    best = float(model.eigenvalues.sum())
    rows = [{"start": "eigenvectors", "objective": 1.0, "support": _support(model.components, sums)}]
    runs = [("random", None, 0.0), *(("eigenvectors", model.components, s) for s in options.sparsity)]
    for name, start, sparsity in runs:
        settings = wanted.replace(n_epochs=options.sgd_rounds, sparsity=sparsity)
        learned, _ = fit_sgd(
            model.sequences(clips), model.coder, engine(), settings, start=start, sums=sums
        )
        P = orthogonalised(learned.components, sums.covariance)
        objective = float(np.vdot(P @ sums.scatter, P)) / best
        rows.append(
            {"start": name, "sparsity": sparsity, "objective": objective, "support": _support(P, sums)}
        )
    return rows


def _support(components: Any, sums: Any) -> float:
    return float(participation(components, sums.mean).mean())


if __name__ == "__main__":
    import json

    print(json.dumps(main(), indent=1))
