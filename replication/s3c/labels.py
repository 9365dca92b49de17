"""Accuracy against the number of labels (Figure 3), and transfer: features from one data set, few labels of another.

    python -m replication.s3c.labels --data cifar10.h5 --units 400 --train 10000 --json results
    python -m replication.s3c.labels --unlabelled tiny_imagenet.h5 --data cifar10.h5 --labels 120 --name transfer ...

Of several penalties or thresholds the one with the best cross-validated accuracy on the first `--choose` training images, all
of them labelled, is used; test images play no part in that. With --work the steps are kept in a folder, and the same command
goes on where it was; --minutes ends it after so long, with exit code 3. Two of them with other --models may share a folder.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.steps import Steps
from replication.s3c.common import (
    OMP_THRESHOLDS,
    SC_PENALTIES,
    carried_out,
    fitted_in_steps,
    images_of,
    represented_in_steps,
    with_settings,
)
from smtdist.codes.s3c import S3CSettings
from smtdist.evaluate.few_labels import (
    C_GRID,
    MANY,
    draw_labelled,
    in_span,
    judged_draw,
    mean_interval,
    standardised,
)
from smtdist.evaluate.linear import cross_validate

COUNTS: Final = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
GRIDS: Final = {"s3c": "feature", "sc": "penalty", "omp": "threshold"}
"""The setting of each model that is chosen."""
SWEEPS: Final = {"each": "sweep", "one": "sweep_one"}
"""How features come to the classifier, each divided by its own deviation or all by one number; what a record calls the sweep."""
Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
Features = tuple[NDArray[np.float32], NDArray[np.int64]]


def chosen(
    steps: Steps, settings: S3CSettings, values: list[Any], unlabelled: NDArray[np.uint8], known: Labelled
) -> tuple[S3CSettings, dict[str, float]]:
    """Return the settings with the value that validates best, and the accuracy of each."""
    name, found = GRIDS[settings.model], {}
    for value in values if len(values) > 1 else ():
        wanted, key = settings.replace(**{name: value}), f"{settings.model}-{name}-{value}"

        def judged(wanted: S3CSettings = wanted, key: str = key) -> NDArray[np.float64]:
            coder = fitted_in_steps(steps, key, unlabelled, wanted)
            (z,) = standardised(represented_in_steps(steps, f"{key}-choose", coder, known[0]))
            span = in_span(z, z[:0])[0]
            path = cross_validate(span, known[1], C_GRID, standardise=False)
            return np.array(max(one["top1"] for one in path))

        found[str(value)] = float(steps.array(f"{key}-chosen", judged))
        steps.forget(f"{key}-choose-*")
    best = max(values, key=lambda value: found.get(str(value), 0.0))
    return settings.replace(**{name: best}), found


def swept(
    steps: Steps,
    key: str,
    counts: list[int],
    draws: int,
    known: Features,
    asked: Features,
) -> list[dict[str, Any]]:
    """Return what `label_sweep` says; each draw is a step."""
    results, last = [], None
    for count in counts:
        found: list[list[float]] = []
        for draw in range(draws):
            judged = partial(_judged, known, asked, count, draw, last if count > MANY else None)
            found.append(steps.array(f"{key}-labels-{count}-{draw}", judged).tolist())
            last = found[0][1]
        accuracies, costs = (list(each) for each in zip(*found, strict=True))
        results.append({"labels": count, **mean_interval(accuracies), "draws": accuracies, "C": costs})
    return results


def _judged(
    known: Features, asked: Features, count: int, draw: int, cost: float | None
) -> NDArray[np.float64]:
    return np.array(judged_draw(known[0], known[1], asked[0], asked[1], count, draw, C=cost))


def beside_first(sweeps: dict[str, Any], name: str) -> dict[str, Any]:
    """Return by how much the first model is ahead of each other one, draw by draw, for each number of labels."""
    first, *others = sweeps
    return {
        other: [
            {"labels": ours["labels"]}
            | mean_interval(list(np.array(ours["draws"]) - np.array(theirs["draws"])), least=-1)
            for ours, theirs in zip(sweeps[first][name], sweeps[other][name], strict=True)
        ]
        for other in others
    }


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compare all models, step by step."""
    steps = Steps(folder, options.minutes)
    apart = ("models", "minutes", "work", "json", "name", "scalings")
    asked = {name: value for name, value in vars(options).items() if name not in apart}
    steps.same({**asked, "data": Path(options.data).name})
    images, labels = images_of(options.data, "train", options.train + options.held_out)
    if options.held_out:
        test, wanted = images[options.train :], labels[options.train :]
        images, labels = images[: options.train], labels[: options.train]
    else:
        test, wanted = images_of(options.data, "test", options.test)
    unlabelled = images
    if options.unlabelled:
        unlabelled = images_of(options.unlabelled, "train", options.learn)[0]
    grids = {"s3c": options.features, "sc": options.penalties, "omp": options.thresholds}
    result: dict[str, Any] = {"units": options.units, "train": len(images), "test": len(test), "sweeps": {}}
    used = np.arange(len(images))
    if options.only_drawn:
        most = max(options.labels)
        used = np.unique(
            np.concatenate([draw_labelled(labels, most, 0, one) for one in range(options.draws)])
        )
    result["coded"] = len(used)
    for model in options.models:
        settings = with_settings(
            options.set, model=model, units=options.units, pooling=tuple(options.pooling)
        )
        if model != "s3c":  # the rivals' dictionaries settle in fewer rounds
            settings = settings.replace(
                rounds=min(settings.max_iter, options.rival_rounds),
                pooling=tuple(options.rival_pooling or options.pooling),
            )
        first = (images[: options.choose], labels[: options.choose])
        settings, validated = chosen(steps, settings, grids[model], unlabelled, first)
        key = f"{model}-{GRIDS[model]}-{settings.to_dict()[GRIDS[model]]}"
        coder = fitted_in_steps(steps, key, unlabelled, settings)
        parts = [partial(represented_in_steps, steps, f"{key}-{name}", coder, part)
                 for name, part in (("train", images[used]), ("test", test))]  # fmt: skip
        active = float(np.mean(parts[1]()[:100] > 0))
        found: dict[str, Any] = {
            "chosen": {GRIDS[model]: settings.to_dict()[GRIDS[model]]},
            "validated": validated,
            "active": active,
        }
        for scaling in options.scalings:
            near, far = standardised(parts[0](), parts[1](), each=scaling == "each")
            z = np.zeros((len(images), near.shape[1]), np.float32)
            z[used] = near
            name = key if scaling == "each" else f"{key}-{scaling}"
            sweep = swept(steps, name, options.labels, options.draws, (z, labels), (far, wanted))
            found |= {"features": int(z.shape[1]), SWEEPS[scaling]: sweep}
            print(
                name, validated, [(one["labels"], round(100 * one["mean"], 1)) for one in sweep], flush=True
            )
        result["sweeps"][model] = found
    result["beside_first"] = {
        name: beside_first(result["sweeps"], SWEEPS[name]) for name in options.scalings
    }
    return result


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--unlabelled", help="data set that features are learned on; the same by default")
    parser.add_argument("--learn", type=int, default=10000, help="images of it")
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--pooling", type=int, nargs="+", default=[3])
    parser.add_argument(
        "--rival-pooling", type=int, nargs="+", help="of the rivals, whose features are twice as many"
    )
    parser.add_argument("--train", type=int, default=10000)
    parser.add_argument(
        "--only-drawn", action="store_true", help="code only images that a draw of labels takes"
    )
    parser.add_argument("--test", type=int, default=0)
    parser.add_argument(
        "--held-out",
        type=int,
        default=0,
        help="judge on so many training images after --train, not on test images",
    )
    parser.add_argument("--choose", type=int, default=1000, help="training images that choose settings")
    parser.add_argument("--labels", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=["s3c", "sc", "omp"])
    parser.add_argument("--features", nargs="+", default=["h"], help="of s3c: h, hs, both, signs")
    parser.add_argument(
        "--penalties", type=float, nargs="+", default=[1.0], help=f"of sc; the paper's: {SC_PENALTIES}"
    )
    parser.add_argument(
        "--thresholds", type=float, nargs="+", default=[0.25], help=f"of omp; {OMP_THRESHOLDS}"
    )
    parser.add_argument(
        "--scalings",
        nargs="+",
        choices=SWEEPS,
        default=["each"],
        help="each: features by their own deviations; one: all by one number, as they are",
    )
    parser.add_argument("--name", default="labels")
    return carried_out(parser, arguments, run, lambda options: f"s3c-{options.name}-N{options.units}")


if __name__ == "__main__":
    main()
