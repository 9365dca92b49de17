"""The random patches that a dictionary is chosen from: which they are is known by their hashes, before a pixel is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data import retry
from smtdist.data.array import ArraySource, chosen_samples
from smtdist.data.fingerprint import Digests
from smtdist.data.source import Source
from smtdist.engine import unchanged
from smtdist.engine.passes import Engine
from smtdist.kernels.threads import even_ranges
from smtdist.kernels.types import Whitener
from smtdist.models.provenance import ordered_digests
from smtdist.statistics.base import State
from smtdist.statistics.candidates import Candidates

CANDIDATES_PER_ATOM = 16
"""A diverse dictionary chooses among this many random patches for each atom it is to have, unless settings say how many."""
SPARE: Final = 16
"""To so many patches that are drawn one more is looked at, for those that are constant or equal another; and as many more as
make it very unlikely that by chance fewer have a hash that small."""
MOST_CHOSEN: Final = 0.8
"""Where more of all samples hold a patch that is to be looked at, all samples are read, and all their patches count."""
HASHES: Final = 1 << 26
"""So many are made before a run sees whether it was asked to stop."""


K = TypeVar("K")
Reduce = Callable[[str, dict[K, Candidates], Source], dict[K, State]]


def sketch_size(settings: Configuration) -> int:
    """Return the random patches that a dictionary is chosen from, or begins with."""
    if settings.dictionary_method == "diverse" and settings.dictionary_samples:
        return settings.dictionary_samples
    starts_drawn = settings.dictionary_n_init
    each = {"diverse": CANDIDATES_PER_ATOM, "kmeans": starts_drawn, "spherical": starts_drawn}
    return drawn_atoms(settings) * each.get(settings.dictionary_method, 1)


def sketch_of(whitener: Whitener, settings: Configuration) -> Candidates:
    """Return the sketch of the random patches that a dictionary is chosen from; a mirrored one has the mirrored ones anyway."""
    flip = settings.augment_flip and not settings.dictionary_mirrored
    return Candidates(
        whitener, flip, sketch_size(settings), settings.random_state, settings.dictionary_mirrored
    )


def drawn_atoms(settings: Configuration) -> int:
    """Return how many atoms are chosen: half of them where the others are their mirror images."""
    return settings.n_atoms // 2 if settings.dictionary_mirrored else settings.n_atoms


def draw(
    source: Source, whitener: Whitener, settings: Configuration, engine: Engine, samples: Digests
) -> tuple[State, list[dict[str, Any]]]:
    """Return the sketch of `sketch_of`, as a pass over all samples would make it, and the records of the passes.

    Samples that are read by themselves are compared with `samples`, the hashes that an earlier pass took of all.
    """
    records = list[dict[str, Any]]()

    def reduce(kept: str, sketches: dict[str, Candidates], some: Source) -> dict[str, State]:
        sketch = sketches["sketch"]
        numbers = sketch.numbers
        partial, record = engine.reduce(
            "dictionary", sketch, some, fingerprint=numbers is not None, kept=kept
        )
        records.append(record)
        if numbers is not None:
            differ = np.flatnonzero(ordered_digests(partial) != samples[numbers])
            if len(differ):
                raise unchanged.changed(f"{source.name}, sample {numbers[differ[0]]}")
        return {"sketch": partial.state}

    return drawn(source, {"sketch": sketch_of(whitener, settings)}, engine, reduce)["sketch"], records


def drawn(
    source: Source, sketches: Mapping[K, Candidates], engine: Engine, reduce: Reduce[K]
) -> dict[K, State]:
    """Return sketches as passes over all samples would make them; `reduce` runs one pass over some for several, by its name
    in a checkpoint folder: that of an earlier version, which read all samples, is not gone on with.

    Which patches have the smallest hashes is known before a pixel is: only samples that hold one of these are read. Where
    too few of them are distinct and not constant, twice as many are looked at, and so on.
    """
    place = source.name, source.n_samples
    sound = source.n_samples - retry.count(engine.skipped.get(place, ()))
    found, left, looks = dict[K, State](), dict(sketches), 0
    above = dict.fromkeys(left, -1)
    while left:
        counts = {key: _looked_at(one) << looks for key, one in left.items()}
        some = {key: one.below(counts[key], source.n_samples) for key, one in left.items()}
        numbers = _holders(source, [(one, above[key]) for key, one in some.items()], engine)
        if not _worth_choosing(source, len(numbers), sound):
            return found | reduce("dictionary", left, source)
        if len(numbers):
            chosen = chosen_samples(source, numbers)
            if place in engine.skipped:  # what cannot be read is known, and not among these
                engine.skipped[chosen.name, chosen.n_samples] = ()
            given = {key: replace(one, numbers=numbers) for key, one in some.items()}
            states = reduce(f"dictionary-first-{max(counts.values())}", given, chosen)
            for key, state in states.items():
                found[key] = left[key].merge(found[key], state) if key in found else state
        above = {key: one.cut for key, one in some.items()}
        left = {
            key: one for key, one in left.items() if key not in found or len(found[key]["hash"]) < one.size
        }
        looks += 1
    return found


def _looked_at(sketch: Candidates) -> int:
    return sketch.size + sketch.size // SPARE + 6 * math.isqrt(sketch.size)


def _worth_choosing(source: Source, samples: int, sound: int) -> bool:
    """Say whether so many samples are to be read alone, of those that can be read; arrays elsewhere are made in parts."""
    in_parts = isinstance(source, ArraySource) and not source.whole
    return samples <= MOST_CHOSEN * sound and not in_parts


def _holders(source: Source, sketches: list[tuple[Candidates, int]], engine: Engine) -> NDArray[np.int64]:
    """Return the samples that can be read and have a hash of a sketch that is beyond what it has seen, ascending."""
    # sketches of other whiteners have the same hashes
    apart = {(one.seed, one.flip, one.places.tobytes(), above, one.cut): one for one, above in sketches}
    found = np.zeros(source.n_samples, bool)
    for (*_, above, _), one in apart.items():
        for start, stop in even_ranges(source.n_samples, max(1, HASHES // one.n_hashes)):
            engine.heed_stop()
            found[one.holders(start, stop, above)] = True
    for start, stop in engine.skipped.get((source.name, source.n_samples), ()):
        found[start:stop] = False
    return np.flatnonzero(found)


def expected_look(source: Source, sketch: Candidates) -> tuple[Candidates, Source]:
    """Return what `drawn` is expected to read, and the sketch that costs as much there: which samples it is are not found out.

    Others are drawn in their place, for what lies between two that are near to each other is read with them.
    """
    n_samples, count = source.n_samples, _looked_at(sketch)
    holders = min(n_samples, math.ceil(n_samples * -math.expm1(-count / n_samples)))
    if count >= n_samples * sketch.n_hashes or not _worth_choosing(source, holders, n_samples):
        return sketch, source
    numbers = np.sort(np.random.default_rng(0).choice(n_samples, holders, replace=False, shuffle=False))
    return sketch.below(count, holders), chosen_samples(source, numbers)
