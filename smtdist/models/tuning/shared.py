"""Many fits on the same data that share every pass, sum and solve which the mathematics lets them share.

Σ does not depend on the ridge, nor the random patches on how many are kept; codes at several thresholds and
over nested dictionaries come from one product; components that are dropped or kept come from one solve.
What is shared is the same, bit for bit, as what separate fits find; components agree to the rounding of the
solver.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine.memory import BUDGET_SHARE
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, equals
from smtdist.kernels.nested import nests
from smtdist.kernels.types import Encoder, Whitener
from smtdist.models import dictionary as smt_dictionary
from smtdist.models import fit as smt_fit
from smtdist.models import model as smt_model
from smtdist.models import random_patches, solving
from smtdist.models.model import Whitening
from smtdist.models.solving import solve
from smtdist.models.tuning.grid import as_text
from smtdist.solve.solution import Solution
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.candidates import Candidates
from smtdist.statistics.cooccurrence import CodeSums
from smtdist.statistics.covariance import PatchMoment
from smtdist.statistics.sums import Statistics, finish
from smtdist.statistics.together import NestedSums, Together

STATES_SHARE = 0.25
"""Share of a worker's budget for the sums of a pass, of which it may hold three."""

Key = Hashable
T = TypeVar("T")
One = TypeVar("One", bound=Statistic)


@dataclass
class Fitted:
    """What settings that differ in `n_components` and `drop` only have in common.

    `settings` are the first such, with all components in `n_components` and none dropped; `encoder` is one
    object for all that share codes; `statistics` are None once solved, unless they are to be kept.
    """

    settings: Configuration
    whitening: Whitening
    dictionary: smt_dictionary.Dictionary
    encoder: Encoder
    embedding: Solution | None = None
    statistics: Statistics | None = None


def fit_together(
    source: Source,
    trials: Sequence[Configuration],
    engine: Engine,
    *,
    atoms: NDArray[np.floating[Any]] | None = None,
    keep_statistics: bool = False,
) -> list[Fitted]:
    """Fit all settings on a source; return what was found for each, shared objects where nothing differs.

    Passes: one for all second moments, one for all random patches (and the rounds of each k-means
    dictionary), and one for all sums of codes, or as many as their memory demands. Solves: one for each set
    of sums. Memory: on a worker up to `STATES_SHARE` of its budget for each copy of the sums; on the driver
    the sums of one such pass, the solve, and (n_components + drop) x K numbers for each solve.
    `keep_statistics` keeps all sums. Raises what `fit` raises.
    """
    if any(one.dictionary_mirrored for one in trials):
        raise ConfigurationError(
            "Mirrored dictionaries are not tuned; leave dictionary_mirrored out, or fit each setting by itself."
        )
    stages = _Stages(source, engine, atoms)
    whitenings = stages.whiten(trials)
    dictionaries = stages.choose(trials, whitenings)
    return stages.sum_and_solve(trials, whitenings, dictionaries, keep_statistics)


@dataclass
class _Stages:
    source: Source
    engine: Engine
    atoms: NDArray[np.floating[Any]] | None

    def whiten(self, trials: Sequence[Configuration]) -> list[tuple[Whitening, Whitener]]:
        """Return Σ and what follows from it for every trial, and one whitener for all whose patches are the same."""
        moments = [self._moment(one) for one in trials]
        states = self._reduced("whitening", {moment: moment for moment in moments}, self.source)
        found: dict[Key, tuple[Whitening, Whitener]] = {}
        result = []
        for settings, moment in zip(trials, moments, strict=True):
            ridge = smt_model.whitener_for(self.source, settings).ridge
            key = (moment, settings.whitening_reg, ridge, settings.min_contrast)
            if key not in found:
                whitening = smt_fit.whitening_of(
                    states[moment], moment.whitener, settings, self.source.name
                )
                first = replace(moment.whitener, min_contrast=settings.min_contrast, ridge=ridge)
                found[key] = whitening, smt_model.whitened(first, whitening)
            result.append(found[key])
        return result

    def _moment(self, settings: Configuration) -> PatchMoment:
        first = smt_model.whitener_for(self.source, settings)
        # what the sum does not depend on must not tell two of them apart
        reach = first.mean_context if first.mean == "context" else "whole"
        first = replace(first, min_contrast=0.0, mean_context=reach, ridge=None)
        return PatchMoment(first, settings.augment_flip)

    def choose(
        self, trials: Sequence[Configuration], whitenings: Sequence[tuple[Whitening, Whitener]]
    ) -> list[smt_dictionary.Dictionary]:
        """Return the dictionary of every trial, from one sketch of random patches for each whitener."""
        for one in trials:
            smt_fit.require_given(one, self.atoms)
        sketches: dict[Key, Candidates] = {}
        for settings, (_, whitener) in zip(trials, whitenings, strict=True):
            if self.atoms is None:
                key = _sketch_key(settings, whitener)
                size = max(
                    random_patches.sketch_size(settings), sketches[key].size if key in sketches else 0
                )
                sketches[key] = Candidates(whitener, settings.augment_flip, size, settings.random_state)
        states = random_patches.drawn(
            self.source, sketches, self.engine, lambda _, some, of: self._reduced("dictionary", some, of)
        )
        found: dict[Key, smt_dictionary.Dictionary] = {}
        result = []
        for settings, (_, whitener) in zip(trials, whitenings, strict=True):
            own = _dictionary_key(settings, whitener)
            if own not in found:
                if self.atoms is not None:
                    found[own] = smt_dictionary.given_dictionary(self.atoms, whitener.geometry.pixels)
                else:
                    # of the sketch the smallest hashes: what a smaller sketch would have been
                    size = random_patches.sketch_size(settings)
                    state = {
                        name: value[:size] if value.ndim else value
                        for name, value in states[_sketch_key(settings, whitener)].items()
                    }
                    found[own], _ = smt_dictionary.from_sketch(
                        state, self.source, whitener, settings, self.engine
                    )
            result.append(found[own])
        return result

    def sum_and_solve(
        self,
        trials: Sequence[Configuration],
        whitenings: Sequence[tuple[Whitening, Whitener]],
        dictionaries: Sequence[smt_dictionary.Dictionary],
        keep_statistics: bool,
    ) -> list[Fitted]:
        """Return for every trial what was fitted; sums are dropped as soon as they are solved."""
        encoders: dict[Key, Encoder] = {}
        sums: dict[Key, CodeSums] = {}
        solves: dict[tuple[Key, str, float | None], Fitted] = {}  # by sums, moment and tolerance
        result = []
        for settings, (whitening, whitener), dictionary in zip(
            trials, whitenings, dictionaries, strict=True
        ):
            euclidean = settings.dictionary_method == "kmeans"
            coded: Key = (id(whitener), id(dictionary), settings.code, settings.constant_patch, euclidean)
            if not settings.one_hot:
                coded = coded, settings.threshold, settings.zero_code
            encoder = encoders.setdefault(
                coded, smt_model.make_encoder(settings, whitener, dictionary.grid)
            )
            summed = (coded, settings.context_size, settings.difference_order, settings.augment_flip)
            sums.setdefault(
                summed,
                CodeSums(
                    encoder,
                    settings.context_size,
                    settings.difference_order,
                    settings.augment_flip,
                    self.source.n_samples,
                ),
            )
            solved = (summed, settings.second_moment, settings.null_tolerance)
            wanted = settings.n_components + settings.drop_components
            own = solves.setdefault(
                solved, Fitted(settings.replace(n_components=1, drop=0), whitening, dictionary, encoder)
            )
            own.settings = own.settings.replace(n_components=max(wanted, own.settings.n_components))
            result.append(own)
        for own in solves.values():
            solving.solve_way(len(own.dictionary.grid), own.settings)
        waiting = Counter(self.engine, "solve", len(solves), "solve")
        for key, statistics in self._statistics(sums):
            for found, own in solves.items():
                if found[0] == key:
                    try:
                        own.embedding = solve(statistics, own.settings)
                    except ConfigurationError as error:
                        told = own.settings.to_dict()
                        about = as_text({name: told[name] for name in ("threshold", "ridge", "context")})
                        raise ConfigurationError(f"With {about}: {error.sentence}") from error
                    own.statistics = statistics if keep_statistics else None
                    waiting.step()
        waiting.end()
        return result

    def _statistics(self, sums: dict[Key, CodeSums]) -> Iterator[tuple[Key, Statistics]]:
        families = _families(sums)
        parts = [(key, family) for family, members in enumerate(families) for key in members]
        for group in self._groups(parts, lambda part: sums[part[0]].state_bytes()):
            nested: dict[int, list[Key]] = {}
            for key, family in group:
                nested.setdefault(family, []).append(key)
            parts_of = {
                str(family): NestedSums(tuple((str(i), sums[key]) for i, key in enumerate(keys)))
                for family, keys in nested.items()
            }
            work = sum(sums[keys[0]].work_per_sample for keys in nested.values())
            together = Together(tuple(parts_of.items()))
            partial, _ = self.engine.reduce("statistics", together, self.source, work_per_sample=work)
            state = partial.state
            for family, keys in nested.items():
                for i, key in enumerate(keys):
                    part = f"{family}.{i}."
                    names = [name for name in state if name.startswith(part)]
                    own = {name.removeprefix(part): state.pop(name) for name in names}
                    statistics = finish(sums[key], own)
                    if not statistics.activity.any():
                        raise DataError(
                            f"No patch of {self.source.name} has a code with one of the settings; fit with a lower "
                            f"threshold or min_contrast, or with {equals('zero_code', 'activate_best')}."
                        )
                    yield key, statistics

    def _reduced(self, name: str, statistics: dict[Key, One], source: Source) -> dict[Key, State]:
        """Sum statistics side by side, in as few passes as memory allows."""
        states: dict[Key, State] = {}
        for group in self._groups(list(statistics), lambda key: statistics[key].state_bytes()):
            together = Together(tuple((str(i), statistics[key]) for i, key in enumerate(group)))
            partial, _ = self.engine.reduce(name, together, source)
            states |= {key: together.part(partial.state, str(i)) for i, key in enumerate(group)}
        return states

    def _groups(self, items: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
        """Yield runs of items whose states fit a worker together, each with one item at least."""
        room = STATES_SHARE * BUDGET_SHARE * self.engine.executor.limit_bytes()
        group: list[T] = []
        taken = 0.0
        for item in items:
            if group and taken + size(item) > room:
                yield group
                group, taken = [], 0.0
            group.append(item)
            taken += size(item)
        if group:
            yield group


class Counter:
    """A stage of the driver in the stream of events: so many things done of all."""

    def __init__(self, engine: Engine, name: str, total: int, counts: str = "sample") -> None:
        self.engine, self.name, self.total, self.done, self.counts = engine, name, total, 0, counts

    def step(self, count: int = 1) -> None:
        """Count; the first is the start."""
        if self.done == 0:
            self.engine.events.started(self.name, self.total, unit=f"{self.counts}s", counts=self.counts)
        self.done += count
        self.engine.events.progress(self.name, self.done, self.done)

    def end(self) -> None:
        """Finish."""
        self.engine.events.emit("pass_finished", **{"pass": self.name}, n_samples=self.total)


def _sketch_key(settings: Configuration, whitener: Whitener) -> tuple[Any, ...]:
    return id(whitener), settings.augment_flip, settings.random_state


def _dictionary_key(settings: Configuration, whitener: Whitener) -> Key:
    method = settings.dictionary_method
    if method == "given":
        return id(whitener)
    key = (*_sketch_key(settings, whitener), method, settings.n_atoms)
    if method == "diverse":
        return *key, settings.dictionary_cosine, settings.dictionary_samples
    if method in ("kmeans", "spherical"):
        rounds = settings.dictionary_rounds, settings.dictionary_n_init, settings.dictionary_samples
        return *key, *rounds, settings.code
    return key


def _families(sums: dict[Key, CodeSums]) -> list[list[Key]]:
    """Group sums whose codes follow from those of the first of the group, the longest."""
    families: list[list[Key]] = []
    for key in sorted(sums, key=lambda key: -sums[key].n_atoms):
        one = sums[key]
        for family in families:
            first = sums[family[0]]
            if one.flip == first.flip and nests(one.encoder, first.encoder):
                family.append(key)
                break
        else:
            families.append([key])
    return families
