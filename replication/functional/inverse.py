"""How near the minimum of equation 6 recovered codes end, and how long that takes, beside 500 proximal steps (FISTA).

python -m replication.functional.inverse --model v8/zca-16-1024-128.h5 --data v8/clips-1.h5 --json results

SNR is in dB, of the patches that codes decode to. The duality gap of each row is that of `tests/reference.py`, from the equation
alone. Seconds are those of the processor, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.record import write_record
from replication.functional.common import split
from smtdist.kernels import l1
from smtdist.models import store
from smtdist.models.functional.inference import PENALTY, recover_codes
from smtdist.models.functional.video_judge import read_samples, snr
from smtdist.solve.solution import Float64
from tests import reference as untyped

reference: Any = untyped
EARLIER: Final = 500
"""Proximal steps of the solver before the active set."""


def proximal(components: Float64, embedded: Float64, penalty: float) -> Float64:
    """Return codes by proximal steps for unit columns, as they were recovered earlier."""
    lengths = np.maximum(np.linalg.norm(components, axis=0), 1e-300)
    codes, _, _ = l1.sparse_codes(
        components / lengths, embedded, penalty / 2, gap=1e-4, method="fista", max_iterations=EARLIER
    )
    found: Float64 = codes / lengths
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="clips of the size that the model was fitted on")
    parser.add_argument("--held-out", nargs="+", default=["carphone_pristine", "cockatoo"])
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--penalty", type=float, nargs="+", default=[PENALTY])
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    model = store.load(options.model)
    source = model.sequences(split(options.data, options.held_out, [])[1])
    count = min(options.most, source.n_samples)
    chosen = np.linspace(0, source.n_samples, count, endpoint=False).astype(np.int64)
    rows = read_samples(source, chosen)
    raw = rows[:, rows.shape[1] // 2].astype(np.float64)
    beta, whitening = model.embed(raw), model.layers[0].whitening
    solvers: dict[str, Callable[[Float64, Float64, float], Float64]] = {
        "default": recover_codes,
        "500 proximal steps": proximal,
    }
    result: dict[str, Any] = {"rows": count, "n_atoms": model.coder.size, "n_components": beta.shape[1]}
    for penalty in options.penalty:
        found: dict[str, Any] = {}
        for name, solve in solvers.items():
            solve(model.components, beta[:2], penalty)  # compiled before the clock runs
            started = time.process_time()
            codes = solve(model.components, beta, penalty)
            seconds = time.process_time() - started
            gaps = [
                reference.inverse_gap(model.components, one, code, penalty)
                for one, code in zip(beta, codes, strict=True)
            ]
            found[name] = {
                "cpu_seconds": seconds,
                "largest_gap": float(np.max(gaps)),
                "median_gap": float(np.median(gaps)),
                "above_1e-3": int((np.array(gaps) > 1e-3).sum()),
                "active": float((codes > 0).sum(axis=1).mean()),
                "snr": snr(raw, model.decode(codes), whitening.mean),
                "snr_whitened": snr(whitening(raw), whitening(model.decode(codes))),
            }
        result[f"{penalty:g}"] = found
    if options.json:
        write_record(options.json, f"functional-inverse-{model.coder.size}-{beta.shape[1]}", result)
    return result


if __name__ == "__main__":
    import json

    print(json.dumps(main(), indent=1))
