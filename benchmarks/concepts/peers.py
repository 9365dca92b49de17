"""The two autoencoders that "Unsupervised learning of categories" compares with, in PyTorch, on the data of `recovery`.

    python -m benchmarks.concepts.peers --points 64 256 --seeds 12 --json benchmarks/results

(a) a two-layer tanh autoencoder, x -> tanh(Ax + c) -> W s + d, with weight decay and a sparsity penalty; concepts are the
signs of the hidden units. (b) a Bernoulli variational autoencoder: logits from a linear layer, relaxed samples at a falling
temperature, a linear decoder and the entropy of the units; concepts are the logits above 0. Both are trained with Adam on all
points; of the learning rates given, the one of least training loss is kept for each data set, and only its time is counted.
Needs the extra "torch".
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np
import torch

from benchmarks.concepts.synthetic import KINDS, embedded, scored
from benchmarks.record import write_record
from smtdist.concepts.objective import best_weights, moments


class Autoencoder(torch.nn.Module):
    """x -> units in (0, 1) -> x; `sample` adds the noise of the variational kind."""

    def __init__(self, n: int, b: int, variational: bool) -> None:
        super().__init__()
        self.encode, self.decode = torch.nn.Linear(n, b), torch.nn.Linear(b, n)
        self.variational = variational

    def loss(self, x: torch.Tensor, temperature: float, penalty: float) -> torch.Tensor:
        """Return the mean squared error and the regulariser."""
        logits = self.encode(x)
        if self.variational:
            noise = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
            units = torch.sigmoid((logits + torch.log(noise) - torch.log1p(-noise)) / temperature)
            share = torch.sigmoid(logits)
            entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, share)
            regulariser = -penalty * entropy
        else:
            units = (torch.tanh(logits) + 1) / 2
            regulariser = penalty * units.mean()
        return ((self.decode(units) - x) ** 2).mean() + regulariser


def trained(
    x: torch.Tensor, b: int, variational: bool, rate: float, epochs: int, seed: int
) -> tuple[Any, float]:
    """Return the concepts (p, b) of a trained autoencoder and its last loss."""
    torch.manual_seed(seed)
    model = Autoencoder(x.shape[1], b, variational)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=1e-5)
    scale = float(x.var())
    value = torch.zeros(())
    for epoch in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            temperature = max(0.3, 1 - epoch / epochs)
            value = model.loss(x[batch], temperature, 1e-3 * scale)
            value.backward()
            optimiser.step()
    with torch.no_grad():
        concepts = (model.encode(x) > 0).numpy().astype(np.uint8)
        final = float(model.loss(x, 0.3, 0.0))
    return concepts, final


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure both peers on every combination."""
    torch.set_num_threads(options.threads)
    rows = []
    for kind, p, snr in itertools.product(options.kinds, options.points, options.snr):
        for name, variational in (("tanh", False), ("vae", True)):
            results = []
            for seed in range(options.seeds):
                rng = np.random.default_rng(seed)
                true = KINDS[kind](rng, p)
                noisy, clean = embedded(rng, true, max(p, true.shape[1]), snr)
                x = torch.tensor(noisy - noisy.mean(0), dtype=torch.float32)
                tries = []
                for rate in options.rates:
                    started = time.perf_counter()
                    concepts, final = trained(x, true.shape[1], variational, rate, options.epochs, seed)
                    tries.append((final, time.perf_counter() - started, concepts))
                _, seconds, concepts = min(tries, key=lambda one: one[0])
                varied = concepts[:, np.ptp(concepts, axis=0) > 0]
                if not varied.shape[1]:
                    varied = np.eye(p, 1, dtype=np.uint8)
                weights = best_weights(moments(varied, noisy))
                results.append({**scored(varied, weights, true, noisy, clean), "seconds": seconds})
            row: dict[str, Any] = {
                "kind": kind,
                "points": p,
                "snr": snr,
                "method": name,
                "seeds": len(results),
            }
            for key in results[0]:
                values = np.array([one[key] for one in results])
                row[key] = float(values.mean())
                row[f"{key}_se"] = (
                    float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
                )
            print({key: round(v, 4) if isinstance(v, float) else v for key, v in row.items()}, flush=True)
            rows.append(row)
    return rows


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--points", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--snr", nargs="+", type=float, default=[0, 10, 20, 30])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-3, 1e-2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="folder for the dated result")
    options = parser.parse_args(arguments)
    rows = run(options)
    if options.json:
        write_record(options.json, f"concepts-peers-{'-'.join(options.kinds)}", {"rows": rows})
    return rows


if __name__ == "__main__":
    main()
