"""Held-out clips: straightness of pixels, codes and embedding, reconstruction beside PCA, inference kept on course, topology.

python -m benchmarks.functional.video --data video.h5 --folder /tmp/video --json benchmarks/results
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.functional.common import coded, engine, rows_of, small_clips, snr, split
from benchmarks.record import write_record
from smtdist.models.functional.dictionary import learn_dictionary
from smtdist.models.functional.fit import SparseCoder, fit_sequences, fit_whitening
from smtdist.models.functional.inverse import recover_codes
from smtdist.models.functional.regularised import regularised_codes
from smtdist.models.functional.sgd import SgdSettings, fit_sgd, orthogonalised, participation
from smtdist.models.functional.straightness import straightness
from smtdist.models.functional.topology import figure_4b, pooling


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    options = _options(arguments)
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    path = small_clips(options.data, Path(options.folder), options.levels)
    shape = {"patch": options.patch, "length": options.length, "places": options.places}
    train, test = split(path, options.held_out, whiten=options.whiten, **shape)
    kind = "scale" if options.whiten == "fourier" else "zca"
    whitening, covariance, _ = fit_whitening(train, engine(), kind)
    stored = (
        Path(options.folder)
        / f"dictionary-{options.whiten}-{options.patch}-{options.atoms}-{options.penalty}.npy"
    )
    if stored.exists():
        dictionary = np.load(stored)
    else:
        dictionary, _, _ = learn_dictionary(
            train,
            whitening,
            engine(),
            atoms=options.atoms,
            penalty=options.penalty,
            rounds=options.rounds,
            batch=options.batch,
        )
        np.save(stored, dictionary)
    seconds = {"dictionary": time.perf_counter() - started}
    coder = SparseCoder(dictionary, options.penalty, whitening)
    model, record = fit_sequences(train, coder, engine(), n_components=options.components)
    seconds["codes and solve"] = record["seconds"]
    P = model.embedding.components
    raw = rows_of(test)[: options.most]
    white = whitening(raw.astype(np.float64))
    codes = coded(coder, raw)
    result: dict[str, Any] = {
        **shape, "whiten": options.whiten, "penalty": options.penalty, "atoms": options.atoms,
        "components": options.components, "levels": options.levels, "held_out": options.held_out,
        "train_sequences": train.n_samples, "test_sequences": len(raw),
        "active": float((codes > 0).sum(axis=2).mean()),
        "dead": model.embedding.n_dead,
    }  # fmt: skip
    beta = codes @ P.T
    spaces = {
        "pixels": raw, "whitened pixels": white, "codes": codes, "embedding": beta,
        "PCA pooling": codes @ pooling(model.sums.covariance, options.components).T,
    }  # fmt: skip
    result["straightness"] = {name: straightness(rows).to_dict() for name, rows in spaces.items()}
    seconds["inference"] = -time.perf_counter()
    result["regularised"] = _regularised(dictionary, P, white, raw, whitening, options)
    seconds["inference"] += time.perf_counter()
    result["snr"] = _reconstruction(dictionary, P, codes, raw, whitening, covariance, options)
    unwhitened = dictionary if kind == "scale" else whitening.unwhiten.T @ dictionary
    result["figure_4b"] = figure_4b(
        unwhitened if kind == "scale" else dictionary,
        P,
        {"PCA pooling": pooling(model.sums.covariance, options.components)},
        best=min(500, options.atoms // 2),
    )
    if options.sgd_rounds:
        result["sgd"] = _sgd(train, coder, model, options)
    result["seconds"] = seconds
    if options.json:
        write_record(options.json, f"functional-video-{options.whiten}", result)
    return result


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--held-out", nargs="+", default=["carphone_pristine", "cockatoo"])
    parser.add_argument("--whiten", default="none", choices=["none", "fourier"])
    for name, default in (
        ("patch", 10), ("length", 8), ("places", 32), ("atoms", 800), ("components", 64), ("levels", 1),
        ("rounds", 15), ("batch", 1000), ("most", 1000), ("sgd-rounds", 0), ("sgd-batch", 256), ("sgd-steps", 20),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--penalty", type=float, default=0.8)
    parser.add_argument("--strength", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--recovery-penalty", type=float, nargs="+", default=[1e-2])
    parser.add_argument("--sparsity", type=float, default=1.0)
    parser.add_argument("--json")
    return parser.parse_args(arguments)


def _regularised(
    dictionary: Any, P: Any, white: Any, raw: Any, whitening: Any, options: Any
) -> list[dict[str, Any]]:
    rows = []
    for strength in options.strength:
        codes = regularised_codes(dictionary, P, white, options.penalty, strength)
        rebuilt = whitening.back(codes @ dictionary.T)
        rows.append(
            {
                "strength": strength,
                "embedding": straightness(codes @ P.T).to_dict(),
                "codes": straightness(codes).to_dict(),
                "snr": snr(raw, rebuilt, whitening.mean),
            }
        )
    return rows


def _reconstruction(
    dictionary: Any, P: Any, codes: Any, raw: Any, whitening: Any, covariance: Any, options: Any
) -> dict[str, Any]:
    """Return SNRs on patches as they were before the whitening of patches, in dB."""
    flat = raw[:, options.length // 2].astype(np.float64)
    code = codes[:, options.length // 2]
    _, vectors = np.linalg.eigh(covariance)
    leading = vectors[:, -options.components :]
    centred = flat - whitening.mean
    result: dict[str, Any] = {
        "PCA": snr(flat, centred @ leading @ leading.T + whitening.mean, whitening.mean),
        "codes": snr(flat, whitening.back(code @ dictionary.T), whitening.mean),
    }
    for penalty in options.recovery_penalty:
        found = recover_codes(P, code @ P.T, penalty, gap=1e-3)
        result[f"embedding, λ = {penalty}"] = snr(flat, whitening.back(found @ dictionary.T), whitening.mean)
    return result


def _sgd(train: Any, coder: Any, model: Any, options: Any) -> dict[str, Any]:
    """Compare P learned by mini-batches, from a random start and from the eigenvectors, with the eigenvectors."""
    sums, analytic = model.sums, model.embedding
    best = float(analytic.eigenvalues.sum())
    result: dict[str, Any] = {
        "analytic": {"support": float(participation(analytic.components, sums.mean).mean())}
    }
    for name, start, sparsity in (
        ("random start", None, 0.0),
        ("eigenvectors, sparse", analytic.components, options.sparsity),
    ):
        settings = SgdSettings(
            n_components=options.components,
            rounds=options.sgd_rounds,
            batch=options.sgd_batch,
            sparsity=sparsity,
        )
        learned, _ = fit_sgd(train, coder, engine(), settings, start=start, sums=sums)
        P = orthogonalised(learned.components, sums.covariance)
        result[name] = {
            "objective": float(np.vdot(P @ sums.scatter, P)) / best,
            "support": float(participation(P, sums.mean).mean()),
        }
    return result


if __name__ == "__main__":
    import json

    print(json.dumps(main(), indent=1))
