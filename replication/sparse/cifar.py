"""CIFAR-10, a share of it: a manifold transform on L1 codes beside one on f_gq, k-NN and linear, same positions and pooling.

python -m replication.sparse.cifar --data ../shared/data/cifar10_jpeg.h5 --train 2000 --test 1000 --json results

With --choose the settings of both, grid after grid, are those with the best mean of k-NN and linear accuracy on so many training
images that are held out meanwhile; test images play no part in that. With --work the answers are kept in a folder.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.record import write_record
from benchmarks.steps import Steps
from replication.s3c.common import images_of
from smtdist.codes.l1 import SparseCoder, SparseSettings
from smtdist.configuration import Configuration
from smtdist.data.array import ArraySource
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.evaluate.knn import SoftNeighbours
from smtdist.evaluate.run import Data, Linear, classified
from smtdist.kernels.threads import set_threads
from smtdist.models.coders.fit import fit_coder
from smtdist.models.coders.manifold import ManifoldSettings, fit_manifold
from smtdist.models.coders.represent import representing
from smtdist.models.fit import fit
from smtdist.models.transform import represented, transform


def pairs_of(arguments: list[str]) -> dict[str, Any]:
    """Return name=value texts as settings."""
    from smtdist.configuration import parse_settings

    return parse_settings(arguments)


def judged(z: list[Any], y: list[Any], engine: Engine) -> dict[str, float]:
    """Return top-1 of soft k-NN and of the linear probe."""
    flat = [each.reshape(len(each), -1) for each in z]
    found = {
        name: classified(Data(flat[0], y[0], flat[1], y[1]), engine, settings)
        for name, settings in (("knn", SoftNeighbours()), ("linear", Linear()))
    }
    return {name: float(one.to_dict()["top1"]) for name, one in found.items()} | {
        "features": flat[0].shape[1]
    }


def on_l1(
    images: list[Any], options: argparse.Namespace, engine: Engine
) -> tuple[list[Any], dict[str, Any]]:
    """Learn a dictionary, embed its codes."""
    started = time.perf_counter()
    settings = SparseSettings(
        n_atoms=options.units,
        patch_size=6,
        images=256,
        patches=16,
        max_iter=40,
        penalty=1.0,
        gap=1e-2,
        pooling_grid=(2,),
    ).replace(**pairs_of(options.l1))
    coder, _ = fit_coder(SparseCoder, ArraySource(images[0]), settings, engine)
    embedding = ManifoldSettings(
        n_components=options.components, drop_components=options.drop_l1, positions=options.positions,
        patch_stride=options.stride, pool_size=options.pool, pool_stride=options.pool_stride,
    )  # fmt: skip
    model, _ = fit_manifold(ArraySource(images[0]), coder, embedding, engine)
    z = [
        represented(representing(model), ArraySource(part), engine).reshape(len(part), -1)
        for part in images
    ]
    return z, {"seconds": time.perf_counter() - started, "active": coder.active}


def on_gq(
    images: list[Any], options: argparse.Namespace, engine: Engine
) -> tuple[list[Any], dict[str, Any]]:
    """Fit the spine's f_gq with as many atoms, the same positions and pooling."""
    started = time.perf_counter()
    settings = Configuration(
        patch_size=6, code="gq", threshold=0.3, context_size="whole", n_atoms=options.units, n_components=options.components,
        drop_components=options.drop_gq, positions=options.positions, patch_stride=options.stride,
        pool_size=options.pool * options.stride,
        # in pixels, where the L1 model counts strides
        pool_stride=options.pool_stride * options.stride,
    ).replace(**pairs_of(options.gq))  # fmt: skip
    fitted = fit(ArraySource(images[0]), settings, engine)
    model = fitted[0] if isinstance(fitted, tuple) else fitted
    z = []
    for part in images:
        pieces = dict(transform(model, ArraySource(part), engine))
        z.append(np.concatenate([pieces[first] for first in sorted(pieces)]))
    return z, {"seconds": time.perf_counter() - started}


GRID_GQ: Final = [
    "drop=0,1,4,16", "threshold=0.2,0.3,0.4,0.5", "mean=context,patch,channel", "ridge=0.001,0.01,0.1",
    "dictionary_method=random,diverse,spherical", "threshold=0.2,0.25,0.3,0.35,0.4,0.5", "zero_code=leave_out,activate_best",
    "ridge=0.003,0.01,0.03,0.1", "drop=0,1,2,4,8",
]  # fmt: skip
"""Settings that f_gq is chosen from, one after another; some twice, since they go with what was chosen between."""
MODELS: Final = {"l1": on_l1, "gq": on_gq}


def answered(
    name: str, images: list[Any], labels: list[Any], options: argparse.Namespace, steps: Steps | None
) -> dict[str, Any]:
    """Fit and judge a model with these settings, or read what was found before."""

    def make() -> dict[str, Any]:
        engine = Engine(SerialExecutor(1))
        z, about = MODELS[name](images, options, engine)
        return judged(z, labels, engine) | about

    if steps is None:
        return make()
    own, drop = getattr(options, name), getattr(options, f"drop_{name}")
    key = "-".join([name, str(len(images[0])), *(each.replace("=", "") for each in own), f"drop{drop}"])
    found: dict[str, Any] = steps.facts(f"{key}.json", make)
    return found


def chosen(
    name: str, images: Any, labels: Any, options: argparse.Namespace, steps: Steps | None
) -> tuple[argparse.Namespace, list[dict[str, float]]]:
    """Go through the grids of a model; return the options with the values that judge best on held-out training images."""
    kept = len(images) - options.choose
    parts, wanted = [images[:kept], images[kept:]], [labels[:kept], labels[kept:]]
    told: list[dict[str, float]] = []
    for grid in getattr(options, f"grid_{name}"):
        setting, values = grid.split("=")
        trials = []
        told.append({})
        for value in values.split(","):
            trial = copy.copy(options)
            if setting == "drop":
                setattr(trial, f"drop_{name}", int(value))
            else:
                setattr(trial, name, [*getattr(options, name), f"{setting}={value}"])
            found = answered(name, parts, wanted, trial, steps)
            told[-1][f"{setting}={value}"] = score = (found["knn"] + found["linear"]) / 2
            trials.append((score, trial))
            print(name, setting, value, found, flush=True)
        options = max(trials, key=lambda pair: pair[0])[1]
    return options, told


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--positions", type=int, default=64)
    parser.add_argument("--stride", type=int, default=3)
    parser.add_argument("--pool", type=int, default=3)
    parser.add_argument("--pool-stride", type=int, default=3)
    parser.add_argument("--drop-l1", type=int, default=0)
    parser.add_argument("--drop-gq", type=int, default=0)
    parser.add_argument(
        "--l1", action="append", default=[], help="name=value of the settings of sparse coding"
    )
    parser.add_argument("--gq", action="append", default=[], help="name=value of the settings of f_gq")
    parser.add_argument("--choose", type=int, default=0)
    parser.add_argument(
        "--grid-l1", nargs="+", default=["penalty=0.25,0.5,1.0", "ridge=0.03,0.1,0.3", "drop=0,4"]
    )
    parser.add_argument("--grid-gq", nargs="+", default=GRID_GQ)
    parser.add_argument("--work")
    parser.add_argument("--only", choices=("l1", "gq"))
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    set_threads(1)
    steps = Steps(Path(options.work)) if options.work else None
    if steps is not None:
        apart = (
            "only",
            "json",
            "work",
            "choose",
            "grid_l1",
            "grid_gq",
            "l1",
            "gq",
            "drop_l1",
            "drop_gq",
            "train",
        )
        steps.same({name: value for name, value in vars(options).items() if name not in apart})
    parts = [images_of(options.data, group, getattr(options, group)) for group in ("train", "test")]
    images, labels = [part[0] for part in parts], [part[1] for part in parts]
    names = ("train", "test", "units", "components", "positions", "stride", "pool", "pool_stride", "choose")
    result: dict[str, Any] = {name: getattr(options, name) for name in names}
    for name in MODELS:
        if options.only in (None, name):
            best, told = options, list[dict[str, float]]()
            if options.choose:
                best, told = chosen(name, images[0], labels[0], options, steps)
            result[name] = answered(name, images, labels, best, steps) | {
                "settings": getattr(best, name),
                "drop": getattr(best, f"drop_{name}"),
                "held_out": told,
            }
    if options.json:
        write_record(options.json, "sparse-cifar", result)
    return result


if __name__ == "__main__":
    print(main())
