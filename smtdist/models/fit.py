"""From a source to a model: whitening pass, dictionary passes, statistics pass, solve."""

from __future__ import annotations

import platform
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import VOTING, Configuration
from smtdist.data.fingerprint import Digests, fingerprint
from smtdist.data.retry import count
from smtdist.data.source import Source
from smtdist.data.spilled import Spill
from smtdist.engine.manifest import Facts, array_hash
from smtdist.engine.memory import memory_limit, resident_bytes
from smtdist.engine.partial import Partial
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, ModelError
from smtdist.kernels.pixels import pixel_scale
from smtdist.kernels.types import Whitener
from smtdist.kernels.whitening import whitening_matrices
from smtdist.models.dictionary import Dictionary, fit_dictionary, given_dictionary
from smtdist.models.model import Model, Whitening, code_sums, image_geometry, unwhitened, whitened
from smtdist.models.plan import finished_bytes, work_per_sample
from smtdist.models.row_tiles import TILE_COUNTS, held_beside, row_tiles
from smtdist.models.solving import Record, timed_solve
from smtdist.models.ways import require_solvable, spill_of, whole_solve_fits
from smtdist.solve.solution import Solution
from smtdist.statistics.base import State
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment, covariance
from smtdist.statistics.origin import Origin
from smtdist.statistics.sums import Statistics, finish, finish_tiles

SMALL_SHARE: Final = 0.1
"""Sums of less than this share of a worker's memory are never cut into tiles."""
LISTED_RANGES: Final = 1000
"""Skipped ranges that a model file lists: attributes hold 64 KiB. Their numbers are always right."""


def fit(
    source: Source,
    settings: Configuration,
    engine: Engine,
    *,
    atoms: NDArray[np.floating[Any]] | None = None,
    base: Model | None = None,
) -> tuple[Model, list[Record]]:
    """Fit the sparse manifold transform (SMT 2023, section 2) and return the model with the records of its passes.

    With `base` its whitening and dictionary are reused and only the statistics are summed; with `atoms` (and
    `dictionary_method = "given"`) the dictionary is the user's.
    The driver needs the memory that `solve_way` states, or the fit is refused.
    """
    first = _checked(source, settings, engine, base)
    steps = ["statistics", "solve"] if base else ["whitening", "dictionary", "statistics", "solve"]
    with engine.run(steps, lambda: run_facts(source, settings, atoms, base)):
        records: list[Record] = []
        samples: Digests | None = None
        if base is None:
            whitening, partial, record = _fit_whitening(source, first, settings, engine)
            samples = ordered_digests(partial)
            dictionary, some = _choose_dictionary(source, whitened(first, whitening), settings, engine, atoms)
            dictionary = dictionary.named(samples)
            records = [record, *([joined("dictionary", some)] if some else [])]
        else:
            whitening, dictionary = base.whitening, base.dictionary
        settings = replace(settings, dictionary=len(dictionary.grid))
        start = Model(settings, first.geometry, first.scale, whitening, dictionary, None, None)
        statistics, record = summed(source, start, engine, samples)
        records.append(record)
        embedding, record = timed_solve(statistics, settings, engine)
        records.append(record)
        return finished(start, statistics, embedding, source.describe(), left_out(source, engine)), records


def summed(
    source: Source, model: Model, engine: Engine, samples: Digests | None = None
) -> tuple[Statistics, Record]:
    """Sum the statistics of a source with the whitening, dictionary and settings of a model, in one pass.

    Where a worker cannot hold the sums well they are made in tiles of rows, a pass each: the same numbers (`row_tiles`).
    `samples` are the hashes of the source's samples where an earlier pass took them.
    """
    sums = code_sums(model, source.n_samples)
    work = work_per_sample(sums.encoder, model.settings)
    spill = spill_of(sums, model.settings, engine)
    tiles = _row_tiles(sums, source, engine, work, samples is None, spill is not None)
    if len(tiles) > 1:
        engine.note(
            f"The sums of {sums.n_atoms:,} atoms are made in {len(tiles)} tiles of rows, and the data are read as often, for the "
            f"memory of a worker."
        )
    parts, records = list[tuple[CodeSums, State]](), list[Record]()
    for number, tile in enumerate(tiles, 1):
        name = _tile_name(number, len(tiles))
        partial, record = engine.reduce(
            name,
            tile,
            source,
            fingerprint=samples is None,
            work_per_sample=work,
            held_bytes=held_beside(tile, tiles) if spill is None else 0,
        )
        samples = ordered_digests(partial) if samples is None else samples
        parts.append((tile, partial.state if spill is None else _spilled(partial.state, spill)))
        records.append(record)
        del partial
    record = records[0] if len(tiles) == 1 else joined("statistics", records)
    small = (
        spill is None
        and len(tiles) == 1
        and whole_solve_fits(sums.n_atoms, model.settings, sums.finished_bytes())
    )
    statistics = finish(*parts[0]) if small else finish_tiles(parts, *([spill] if spill else []))
    if not statistics.activity.any():
        raise DataError(
            f"No patch of {source.name} has a code; lower threshold or min_contrast, or set zero_code=activate_best."
        )
    assert samples is not None
    samples = samples[samples != 0]  # what was skipped has no hash
    added = {
        "action": "added",
        "fingerprint": fingerprint(samples),
        "n_samples": len(samples),
        "source": source.name,
    }
    origin = Origin(model.basis, samples, model.dictionary.samples, (added,))
    return replace(statistics, origin=origin), record


def _spilled(state: State, spill: Spill) -> State:
    return {name: spill(value) if value.ndim == 2 else value for name, value in state.items()}


def _row_tiles(
    sums: CodeSums, source: Source, engine: Engine, work: float, fingerprint: bool, spilled: bool
) -> tuple[CodeSums, ...]:
    """Return the sums in tiles that a worker can hold; in those of the run that is resumed, if it can hold them still."""
    begun = _begun(engine.checkpoint)
    if not (begun or spilled) and SMALL_SHARE * engine.executor.limit_bytes() > sums.state_bytes():
        return (sums,)  # no need to measure
    return row_tiles(
        sums,
        source,
        engine.limits(sums, source),
        checkpointed=engine.checkpoint is not None,
        work=work,
        fingerprint=fingerprint,
        driver_room=memory_limit() - resident_bytes() if spilled else None,
        begun=begun,
    )


def _begun(checkpoint: Path | None) -> list[int]:
    """Return the numbers of tiles of which a checkpoint folder has sums, those first of which it has most: others begin anew."""
    done: dict[int, tuple[int, int]] = {}
    for tiles in TILE_COUNTS:
        if checkpoint is not None:
            folders = [checkpoint / _tile_name(number, tiles) for number in range(1, tiles + 1)]
            files = [path.name for folder in folders for path in folder.glob("*.h5")]
            if files:
                done[tiles] = files.count("result.h5"), len(files)
    return sorted(done, key=lambda tiles: done[tiles], reverse=True)


def _tile_name(number: int, count: int) -> str:
    return "statistics" if count == 1 else f"statistics-{number}-of-{count}"


def finished(
    model: Model,
    statistics: Statistics,
    embedding: Solution | None,
    source: dict[str, Any] | None = None,
    skipped: Record | None = None,
) -> Model:
    """Return the model with its sums, its embedding, where they come from and what could not be read."""
    about: dict[str, Any] = {"source": source or model.provenance.get("source", {}), "versions": _versions()}
    if statistics.origin is not None:
        about["fingerprint"] = statistics.origin.fingerprint
        about["audit"] = list(statistics.origin.audit)
    left_out = [*model.provenance.get("skipped", []), *([skipped] if skipped else [])]
    if left_out:
        about["skipped"] = left_out
    kept = statistics if model.settings.keep_statistics else None
    return replace(model, statistics=kept, embedding=embedding, provenance=about)


def left_out(source: Source, engine: Engine) -> Record | None:
    """Return which samples of a source the passes have skipped, for the model's provenance."""
    ranges = engine.skipped.get((source.name, source.n_samples), ())
    if not ranges:
        return None
    listed = [list(piece) for piece in ranges[:LISTED_RANGES]]
    return {
        "source": source.name,
        "n_samples": count(ranges),
        "n_ranges": len(ranges),
        "ranges": listed,
    }


def ordered_digests(partial: Partial) -> Digests:
    """Return the hashes of all samples, in order; those that were skipped have 0."""
    digests = partial.counters.digests
    return np.concatenate([digests[leaf] for leaf in sorted(digests)])


def _checked(source: Source, settings: Configuration, engine: Engine, base: Model | None) -> Whitener:
    """Refuse what cannot end well before any data is read; return what is known of the whitener by then."""
    geometry = image_geometry(settings, source.shape, source.name)
    scale = pixel_scale(source.dtype, settings.pixel_range)
    if base is not None and (geometry, scale) != (base.geometry, base.scale):
        raise ModelError(
            f"The model was fitted on patches of {tuple(base.geometry)} (height, width, channels, patch), {source.name} has "
            f"{tuple(geometry)}; fit without --from-model."
        )
    if settings.dictionary_method != "given" and base is None:
        require_solvable(settings.dictionary, settings, finished_bytes(source, settings), engine)
    return unwhitened(settings, geometry, scale)


def _fit_whitening(
    source: Source, whitener: Whitener, settings: Configuration, engine: Engine
) -> tuple[Whitening, Partial, Record]:
    partial, record = engine.reduce(
        "whitening", PatchMoment(whitener, settings.flip), source, fingerprint=True
    )
    moment, mean = covariance(partial.state, whitener)
    if not moment.any():
        raise DataError(f"All patches of {source.name} are constant; there is nothing to whiten.")
    whiten, unwhiten = whitening_matrices(moment, settings.ridge)
    return Whitening(moment, whiten, unwhiten, mean), partial, record


def _choose_dictionary(
    source: Source,
    whitener: Whitener,
    settings: Configuration,
    engine: Engine,
    atoms: NDArray[np.floating[Any]] | None,
) -> tuple[Dictionary, list[Record]]:
    if (settings.dictionary_method == "given") != (atoms is not None):
        raise ModelError(
            "Atoms of your own go with dictionary_method=given, and the other way round; give both or neither."
        )
    if atoms is not None:
        return given_dictionary(atoms, whitener.geometry.pixels), []
    return fit_dictionary(source, whitener, settings, engine)


def joined(name: str, records: list[Record]) -> Record:
    """Return several passes as one record: times and bytes add up, peaks do not."""
    total: Record = {"name": name, "rounds": len(records)}
    for key in ("seconds", "n_samples", "n_positions", "read_bytes", "resumed_leaves"):
        total[key] = sum(record[key] for record in records)
    highest = max(records, key=lambda record: record["peak_bytes"])
    return {**total, "peak_bytes": highest["peak_bytes"], "projected_bytes": highest["projected_bytes"]}


def _versions() -> dict[str, str]:
    packages = ("smtdist", "numpy", "scipy", "h5py", "dask", "distributed")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def run_facts(source: Source, settings: Configuration, atoms: Any = None, base: Model | None = None) -> Facts:
    """Return what a checkpoint of a fit depends on, piece by piece."""
    given: dict[str, str] = {}
    if atoms is not None:
        given["the atoms"] = array_hash(atoms)
    if base is not None:
        given["the model"] = array_hash(base.whitening.whiten, base.dictionary.grid)
    asked = {name: value for name, value in settings.to_dict().items() if name not in VOTING}
    return Facts.of(source, asked, given)
