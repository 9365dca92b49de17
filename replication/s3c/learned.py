"""How well codes tell classes apart, by how the model was learned, on training images: what settings are chosen on.

    python -m replication.s3c.learned --data cifar10.h5 --units 400 --settings "" "rounds=80 images=500" "model=sc penalty=1.25"

The first --learn training images are learned from, the next --known lend their labels, the next --asked are judged; only every
other position of an image is coded. Rows differ in settings alone, and see the same images and draws of labels: beside each
accuracy stands its difference from the first row, draw by draw, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record
from replication.s3c.common import fitted, images_of, with_settings
from smtdist.codes.s3c import PatchCoder
from smtdist.evaluate.few_labels import judged_draw, mean_interval, standardised
from smtdist.kernels.device import to_host
from smtdist.kernels.representation import grid_pool
from smtdist.kernels.spike_slab import energy, infer

GROUP, SAMPLE = 50, 2000
LABELS: Final = {"each": "labels", "one": "labels_one"}
"""Features divided each by its own deviation or all by one number, and what a row calls what came of it."""


def some_rows(coder: PatchCoder, images: NDArray[np.uint8], step: int) -> NDArray[np.float32]:
    """Return whitened patches of every `step`-th position in both directions, (m, rows, columns, p)."""
    maps = coder.rows(images).reshape(len(images), *coder.patches.grid, -1)
    return np.ascontiguousarray(maps[:, step // 2 :: step, step // 2 :: step])


def some_features(coder: PatchCoder, images: NDArray[np.uint8], step: int) -> NDArray[np.float32]:
    """Return features pooled over these positions, (n, features)."""
    parts = []
    for start in range(0, len(images), GROUP):
        rows = some_rows(coder, images[start : start + GROUP], step)
        maps = coder.code(rows.reshape(-1, rows.shape[-1])).reshape(*rows.shape[:3], -1)
        parts.append(to_host(grid_pool(maps, coder.settings.pooling_grid)).reshape(len(rows), -1))
    return np.concatenate(parts)


def learned(coder: PatchCoder, images: NDArray[np.uint8], step: int) -> dict[str, Any]:
    """Return what the model has become: medians, units at work in a patch, and how far a unit keeps to one sign."""
    if coder.settings.model != "s3c":
        return {}
    found = some_rows(coder, images[:GROUP], step)
    rows = found.reshape(-1, found.shape[-1])[:SAMPLE]
    model = coder.parameters.astype(np.float32)
    posterior = infer(rows, model, coder.settings.schedule())
    mean = posterior.mean
    signed, whole = np.abs(mean.sum(axis=0)), np.maximum(np.abs(mean).sum(axis=0), 1e-12)
    medians = {name: float(np.median(np.abs(getattr(model, name)))) for name in ("alpha", "beta", "mu")}
    return {
        **medians,
        "active": float(posterior.h.sum(axis=1).mean()),
        "above_0.01": float((posterior.h > 0.01).sum(axis=1).mean()),
        # 0: as often for its negative as for its atom; 1: never for its negative
        "one_sign": float((signed * signed / whole).sum() / signed.sum()),
        "error": float(((rows - mean @ model.atoms) ** 2).sum(axis=1).mean()),
        "energy": float(energy(rows, posterior, model).mean()),
    }


def judged(
    near: NDArray[Any], known: NDArray[Any], far: NDArray[Any], wanted: NDArray[Any], count: int, draws: int
) -> dict[str, Any]:
    """Return the accuracy of draws of `count` labels, their mean and its interval."""
    found = [judged_draw(near, known, far, wanted, count, one)[0] for one in range(draws)]
    return {**mean_interval(found), "draws": found}


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Fit, code and judge a row after the other."""
    cuts = np.cumsum([options.learn, options.known, options.asked])
    images, labels = images_of(options.data, "train", int(cuts[-1]))
    learn, known, asked = np.split(images[: cuts[-1]], cuts[:-1])
    _, known_labels, wanted = np.split(labels[: cuts[-1]], cuts[:-1])
    table: list[dict[str, Any]] = []
    for text in options.settings:
        settings = with_settings(text.split(), units=options.units)
        began = time.process_time()
        coder, _ = fitted(learn, settings)
        fit_seconds = time.process_time() - began
        parts = [some_features(coder, part, options.step) for part in (known, asked)]
        row: dict[str, Any] = {
            "settings": text,
            "fit_cpu_seconds": fit_seconds,
            "features": parts[0].shape[1],
        }
        row |= learned(coder, asked, options.step)
        for scaling in options.scalings:
            name = LABELS[scaling]
            near, far = standardised(*parts, each=scaling == "each")
            row[name] = {
                str(count): judged(near, known_labels, far, wanted, count, options.draws)
                for count in options.labels
            }
            for count, one in row[name].items() if table else ():
                first = np.array(table[0][name][count]["draws"])
                one["beside_first"] = mean_interval(list(np.array(one["draws"]) - first), least=-1)
            print(
                text or "as it is", scaling, {c: round(100 * one["mean"], 1) for c, one in row[name].items()},
                flush=True,
            )  # fmt: skip
        table.append(row)
    return table


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--units", type=int, default=400)
    parser.add_argument("--learn", type=int, default=4000)
    parser.add_argument("--known", type=int, default=800)
    parser.add_argument("--asked", type=int, default=800)
    parser.add_argument("--step", type=int, default=2, help="of positions that are coded")
    parser.add_argument("--scalings", nargs="+", choices=LABELS, default=["each"], help="as of labels")
    parser.add_argument("--labels", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--settings", nargs="+", default=[""], help='a row each, such as "rounds=80 mu=1"')
    parser.add_argument("--name", default="learned")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    table = run(options)
    if options.json:
        write_record(options.json, f"s3c-{options.name}-N{options.units}", {"table": table})
    return table


if __name__ == "__main__":
    main()
