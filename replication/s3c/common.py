"""What the benchmarks of patch coders share: images, fitted coders, features of a share of the data."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record
from benchmarks.steps import Steps, folder_of
from smtdist.codes.s3c import PatchCoder, S3CSettings
from smtdist.data.array import ArraySource
from smtdist.data.look import labels_name, read_labels
from smtdist.data.opening import open_source
from smtdist.data.source import Source
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.passes import Engine
from smtdist.models import store
from smtdist.models.coders.fit import fit_coder
from smtdist.models.coders.represent import representing
from smtdist.models.transform import represented

SC_PENALTIES: Final = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Grid of sparse coding penalties; the paper prints 1.25 twice, and the second is taken for 1.5."""
OMP_THRESHOLDS: Final = (0.1, 0.25, 0.5, 1.0)
COLOUR = SimpleNamespace(resize=32, center_crop=32, channels=3)
SLICE: Final = 100
"""Images whose features are one step."""


def carried_out(
    parser: argparse.ArgumentParser,
    arguments: list[str] | None,
    run: Callable[[argparse.Namespace, Path], dict[str, Any]],
    named: Callable[[argparse.Namespace], str],
) -> dict[str, Any]:
    """Add the options of runs in steps, parse them, run in a folder that may keep the steps, and write the record."""
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--rival-rounds", type=int, default=30)
    parser.add_argument("--work", help="folder that keeps the steps, so that the command can go on")
    parser.add_argument("--minutes", type=float, default=np.inf, help="stop after so many; needs --work")
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    with folder_of(options.work) as folder:
        result = run(options, folder)
    if options.json:
        write_record(options.json, named(options), result)
    return result


def images_of(path: str, group: str, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the first `count` images (0: all), colour and 32 x 32 where they are encoded, and their labels."""
    source: Source = open_source(path, group, COLOUR, fitted=True)
    n = min(count, source.n_samples) if count else source.n_samples
    labels = read_labels(path, labels_name(path, group), source.n_samples)
    with source.opened() as reader:
        images = reader.read(0, n)
    return images, np.asarray(labels[:n], np.int64)


def fitted(images: NDArray[Any], settings: S3CSettings) -> tuple[PatchCoder, float]:
    """Fit in this process; return the coder and the seconds its passes took."""
    coder, records = fit_coder(PatchCoder, ArraySource(images), settings, Engine(SerialExecutor()))
    return coder, sum(record["seconds"] for record in records)


def features(coder: PatchCoder, images: NDArray[Any]) -> NDArray[np.float32]:
    """Return pooled features, (n, features)."""
    return represented(representing(coder), ArraySource(images), Engine(SerialExecutor())).reshape(
        len(images), -1
    )


def fitted_in_steps(steps: Steps, key: str, images: NDArray[Any], settings: S3CSettings) -> PatchCoder:
    """Fit in this process, or go on with that, or read what was fitted before."""
    path, folder = steps.folder / f"{key}.h5", steps.folder / f"{key}-checkpoint"
    if not path.exists():
        engine = Engine(SerialExecutor(), EventStream(), folder, settings.to_json(), steps.stop)
        store.save(fit_coder(PatchCoder, ArraySource(images), settings, engine)[0], path)
    steps.forget(folder.name)
    coder: PatchCoder = store.load(path)
    return coder


def represented_in_steps(
    steps: Steps, key: str, coder: PatchCoder, images: NDArray[Any]
) -> NDArray[np.float32]:
    """Return pooled features, (n, features), made a slice of images at a time."""
    parts = [
        steps.array(f"{key}-{start}", partial(features, coder, images[start : start + SLICE]))
        for start in range(0, len(images), SLICE)
    ]
    return np.concatenate(parts)


def with_settings(pairs: list[str], **changes: Any) -> S3CSettings:
    """Return settings from name=value texts on top of changes."""
    from smtdist.configuration import parse_settings

    return S3CSettings().replace(**{**changes, **parse_settings(pairs)})
