"""How far a head gets on one model of colour and one of grey images: the commands of README, each in a process of its own.

    python -m replication.heads --data ../shared/data/cifar10_lossless.h5 --work RUN --images 2000 10000 --json results
    python -m replication.heads --data ../shared/data/cifar10_lossless.h5 --test-data ../shared/data/cifar10_test_lossless.h5 \\
        --work RUN --images 50000 --half --landmarks 8192
    python -m replication.heads --data ../shared/data/cifar10_lossless.h5 --work RUN --images 10000 --labels 100 1000 --draws 3

For each number of training images: `fit --preset cifar10-gq` with the dictionary asked for, once in colour and once in grey;
`transform --features both --mirrored` of training and test images; `evaluate --metric kernel` of the two files. RUN keeps models,
files and what each command took, so that the same command goes on where it ended. CPU seconds and peak memory of each command
stand beside its figure; nothing is chosen on test images. Features take 229 KB an image, or 115 with --half: K = 2,048, both
models, mirror images.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py

from benchmarks.processes import watched
from benchmarks.record import write_record
from benchmarks.steps import Steps

KINDS = {"colour": (), "grey": ("--set", "grey=true")}


def run(words: Sequence[str]) -> dict[str, Any]:
    """Run a command of smtdist; return what it printed as JSON, its seconds, CPU seconds and peak memory."""
    found = watched([sys.executable, "-m", "smtdist", *words, "--json"])
    shown = shlex.join(Path(word).name if "/" in word else word for word in words)
    kept = {name: found[name] for name in ("seconds", "cpu_seconds", "peak_bytes")}
    said = json.loads("\n".join(found["lines"]))
    # a record says nothing of where this machine keeps its files
    said |= {name: Path(said[name]).name for name in ("out", "model") if name in said}
    for entry in said.get("audit", ()):
        entry["source"] = Path(entry["source"]).name
    return {"command": f"smtdist {shown}", "said": said, **kept}


def first_images(data: Path, group: str, count: int, out: Path) -> None:
    """Copy the first so many encoded images of a group, and their labels, as they are."""
    with h5py.File(data) as file, h5py.File(out, "w") as copy:
        source, target = file[group], copy.create_group(group)
        if "offsets" in source:
            offsets = source["offsets"][: count + 1]
            target["offsets"] = offsets
            target["bytes"] = source["bytes"][: int(offsets[-1])]
        else:
            target["images"] = source["images"][:count]
        target["labels"] = source["labels"][:count]
        for kept, found in (
            (copy, file),
            (target, source),
        ):  # the names of classes are the file's or the group's
            for key, value in found.attrs.items():
                kept.attrs[key] = value


def fitted(
    arguments: argparse.Namespace, steps: Steps, name: str, kind: str, some: Path
) -> tuple[Path, dict[str, Any]]:
    """Fit a model of one kind to the images of a file; return where it is, and what it took."""
    model = steps.path(f"{name}-{kind}.h5")
    settings = [
        word for one in (f"dictionary={arguments.dictionary}", *arguments.set) for word in ("--set", one)
    ]
    words = [
        *("fit", str(some), "--dataset", arguments.train, "--preset", arguments.preset),
        *(*settings, *KINDS[kind], "--no-first-look", "--out", str(model), "--overwrite"),
    ]
    return model, steps.facts(f"{name}-fit-{kind}.json", partial(run, words))


def measured(arguments: argparse.Namespace, steps: Steps, count: int) -> dict[str, Any]:
    """Return what the commands for so many training images took and found."""
    name = f"{count}-{arguments.dictionary}"
    some = steps.path(f"{name}-images.h5")
    if not some.exists():
        first_images(arguments.data, arguments.train, count, some)
    models, took = [], {}
    for kind in arguments.kinds:
        model, took[f"fit {kind}"] = fitted(arguments, steps, name, kind, some)
        models.append(str(model))
    files = []
    mirrored = [] if arguments.not_mirrored else ["--mirrored"]
    beside = [word for model in models[1:] for word in ("--with", model)]
    for group, path in ((arguments.train, some), (arguments.test, arguments.test_data or arguments.data)):
        out = steps.path(f"{name}-{group.replace('/', '-')}-z.h5")
        words = [
            *("transform", models[0], str(path), "--dataset", group, *beside),
            *("--features", "both", *mirrored, *(["--half"] if arguments.half else [])),
        ]
        took[f"transform {group}"] = steps.facts(
            f"{name}-transform-{group.replace('/', '-')}.json",
            partial(run, [*words, "--out", str(out), "--overwrite"]),
        )
        files.append(str(out))
    took["kernel"] = steps.facts(
        f"{name}-kernel.json", partial(run, ["evaluate", *files, "--metric", "kernel"])
    )
    for landmarks in arguments.landmarks:
        head = str(steps.path(f"{name}-{landmarks}-landmarks.h5"))
        chosen = ["--model", "head", "--set", f"landmarks={landmarks}"]
        words = ["fit", files[0], *chosen, "--out", head, "--overwrite"]
        fit = f"{landmarks} landmarks, fit"
        took[fit] = steps.facts(f"{name}-{landmarks}-fit.json", partial(run, words))
        took[f"{landmarks} landmarks"] = steps.facts(
            f"{name}-{landmarks}-judged.json", partial(run, ["evaluate", head, files[1]])
        )
    for labels in arguments.labels:
        words = [
            "evaluate",
            *files,
            "--metric",
            "kernel",
            "--labels",
            str(labels),
            "--draws",
            str(arguments.draws),
        ]
        took[f"{labels} labels"] = steps.facts(f"{name}-{labels}-labels.json", partial(run, words))
    return {"images": count, "dictionary": arguments.dictionary, "took": took}


def main() -> None:
    """Run the benchmark, print its figures, and write a record if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="file with the groups train and test")
    parser.add_argument("--test-data", type=Path, help="file that holds the test group instead")
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps what is done")
    parser.add_argument("--images", type=int, nargs="+", default=[2000, 10_000], help="training images")
    parser.add_argument("--dictionary", type=int, default=2048)
    parser.add_argument("--preset", default="cifar10-gq")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="models side by side"
    )
    parser.add_argument(
        "--no-mirrored",
        dest="not_mirrored",
        action="store_true",
        help="for digits, whose mirror images are others",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--labels", type=int, nargs="*", default=[], help="so few labels too, in several draws"
    )
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument(
        "--landmarks", type=int, nargs="*", default=[], help="heads through so many landmarks too"
    )
    parser.add_argument("--half", action="store_true", help="features as float16, in half the bytes")
    parser.add_argument("--train", default="train")
    parser.add_argument("--test", default="test")
    parser.add_argument("--json", help="folder for the dated result")
    arguments = parser.parse_args()
    steps, results = Steps(arguments.work), []
    for count in arguments.images:
        found = measured(arguments, steps, count)
        results.append(found)
        for name, one in found["took"].items():
            told = one["said"]
            figure = f"{100 * told['top1']:.1f} %" if "top1" in told else ""
            if "sweep" in told:
                figure = f"{100 * told['sweep'][0]['mean']:.1f} %"
            print(
                f"{count:,} images, {name}: {figure} {one['cpu_seconds']:.0f} CPU s, {one['peak_bytes'] / 2**20:.0f} MiB",
                flush=True,
            )
    if arguments.json:
        print(write_record(arguments.json, "heads", {"rows": results}))


if __name__ == "__main__":
    main()
