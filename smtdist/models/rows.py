"""Models that embed each sample by its numbers alone: how samples are opened, transformed and compared, whatever the model."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from smtdist import errors
from smtdist.data.fingerprint import array_hash
from smtdist.data.hdf5 import TEXTS, table_elsewhere
from smtdist.data.opening import copied_labels, table_labels_name
from smtdist.data.source import Source
from smtdist.data.table import as_table
from smtdist.engine import plan as pass_plan
from smtdist.engine import worker
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, DataWarning, ModelError, counted, option
from smtdist.models.jobs import Look, Seen
from smtdist.models.readout import layout_to_plain, whole_row
from smtdist.models.transform import save_representation

ROWS: Final = 1024  # samples that a worker embeds at a time
RANGE: Final = 16 * ROWS  # samples of a task that embeds


class RowModel(ABC):
    """A model that embeds rows of numbers, or samples that it takes as rows."""

    dtype: ClassVar[str] = "float64"
    """Of the numbers of an embedded sample."""

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Numbers of a row."""

    @property
    @abstractmethod
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of an embedded sample."""

    @abstractmethod
    def embed(self, samples: NDArray[Any]) -> NDArray[Any]:
        """Return embedded samples (m, ...): of each the same numbers beside whichever others."""

    @property
    def row_bytes(self) -> int:
        """Bytes that a sample takes while it is embedded, beside its own numbers and the result."""
        return 32 * math.prod(self.feature_shape)

    def embedding_bytes(self, source: Source) -> int:
        """Return the memory that a process takes at most while it embeds samples of a source, beside the result."""
        sample, made = 8 * math.prod(source.shape[1:]), 8 * math.prod(self.feature_shape)
        return ROWS * (3 * sample + self.row_bytes) + 2 * RANGE * (sample + made)

    def opened(self, data: list[str], dataset: str | None, skip: bool) -> Source:
        """Return the samples that files and a dataset name, as the model takes them."""
        return table_of(data, dataset)

    def taken(self, X: Any, skip: bool) -> AbstractContextManager[Source]:
        """Return a context that yields samples of Python."""
        return nullcontext(X if isinstance(X, Source) else as_table(X))

    def require_rows(self, source: Source) -> None:
        """Refuse samples of another size than those of the fit."""
        if (found := math.prod(source.shape[1:])) != self.n_inputs:
            raise DataError(
                f"The model takes samples of {self.n_inputs} numbers, {source.name} has {found}; give samples like those it was "
                f"fitted on."
            )

    def require_like(self, source: Source) -> None:
        """Refuse samples that cannot be added to those of the fit."""
        self.require_rows(source)

    def require_addable(self, other: Any, name: str) -> None:
        """Refuse a model, called `name`, of samples of another size."""
        if other.n_inputs != self.n_inputs:
            raise ModelError(
                f"{name} has samples of {other.n_inputs} numbers, the first model of {self.n_inputs}; fit one of them anew, with "
                f"the columns of the other."
            )


def table_of(data: Sequence[str], dataset: str | None) -> Source:
    """Return the rows of a table in one file: a dataset of an HDF5 file, or a .npy file."""
    if len(data) > 1:
        raise ConfigurationError(
            f"A table is one file, but {len(data)} are given; add one file after the other."
        )
    if said := table_elsewhere(data[0], *TEXTS, ".parquet"):
        raise DataError(said)
    if (dataset is None) != data[0].endswith(".npy"):
        raise ConfigurationError(
            f"{data[0]} is not a .npy file, so {option('(path, dataset)')} must name the rows in it; give it."
            if dataset is None
            else f"{data[0]} holds rows alone; leave {option('(path, dataset)')} out."
        )
    return as_table(data[0] if dataset is None else (data[0], dataset))


def embedded(
    model: RowModel, source: Source, engine: Engine
) -> Iterator[tuple[int, NDArray[np.floating[Any]]]]:
    """Yield (first sample, embedded samples (m, ...)) for all samples, in whatever order they end.

    Memory on a worker: 1,024 samples and what the model makes of them on the way, and 16,384 embedded samples.
    """
    model.require_rows(source)
    step = source.chunk_samples * max(1, RANGE // source.chunk_samples)
    ranges = [(start, min(start + step, source.n_samples)) for start in range(0, source.n_samples, step)]
    zeros = 0
    for (start, _), values in engine.map(_embed_range, model.embed, source, ranges):
        zeros += int(np.count_nonzero(~values.reshape(len(values), -1).any(axis=1)))
        yield start, values
    if zeros:
        errors.warn(
            f"Embedded as zeros: {zeros:,} of {counted(source.n_samples, 'row')} of {source.name}. No feature of the model "
            f"reaches such a row; scale rows as those of the fit.",
            DataWarning,
        )


def _embed_range(
    embed: Callable[[NDArray[Any]], NDArray[np.floating[Any]]], source: Source, start: int, stop: int
) -> NDArray[np.floating[Any]]:
    parts = []
    with source.opened() as reader:
        for first, samples in worker.batches(reader, start, stop, pass_plan.block_samples(source), ROWS):
            with worker.located(source.name, first):
                parts.append(embed(samples))
    return np.concatenate(parts)


def in_memory(model: RowModel, source: Source, engine: Engine, dtype: Any) -> NDArray[np.floating[Any]]:
    """Return all embedded samples, (n, ...)."""
    found: NDArray[Any] = np.empty((source.n_samples, *model.feature_shape), dtype)
    for first, values in embedded(model, source, engine):
        found[first : first + len(values)] = values
    return found


def seen(model: Any, look: Look) -> Seen:
    """Open samples that a model embeds."""
    source = model.opened([look.data], look.dataset, False)
    fingerprint = model.provenance.get("fingerprint")
    attributes = {
        "configuration": "{}" if model.settings is None else model.settings.to_json(),
        "model": str(look.model.absolute()),
        **({"model_fingerprint": fingerprint} if fingerprint else {}),
        "source": source.name,
    }
    n, shape = source.n_samples, model.feature_shape
    about = {"n_samples": n, "n_features": math.prod(shape)}
    attributes |= {"parts": json.dumps(layout_to_plain(whole_row(math.prod(shape)))), "skipped": "[]"}

    def write(engine: Engine, out: Path, overwrite: bool) -> int:
        labels, names, unusable = copied_labels(look.data, look.dataset, source, table_labels_name)
        about.update(labels=labels is not None, labels_left_out=unusable)
        pieces = embedded(model, source, engine)
        return save_representation(
            out,
            pieces,
            n,
            shape,
            model.dtype,
            {**attributes, "identity": identity_of(model)},  # which a plan need not know
            overwrite=overwrite,
            labels=labels,
            names=names,
        )

    return Seen(source, write, about)


def identity_of(model: Any) -> str:
    """Return a hash of what embedded samples depend on: the settings of a model and the arrays of its file, but not its sums."""
    told = "" if model.settings is None else model.settings.to_json()
    arrays = [np.frombuffer(told.encode(), np.uint8)]
    for place, group in model.stored():
        if place not in ("audit", "statistics"):
            arrays += [values for _, (_, values, _) in group.items() if isinstance(values, np.ndarray)]
    return array_hash(*arrays)
