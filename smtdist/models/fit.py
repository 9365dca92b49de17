"""From a source to a model: whitening pass, dictionary passes, statistics pass, solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.fingerprint import Digests, array_hash
from smtdist.data.source import Source
from smtdist.engine import manifest
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, ModelError, equals, option
from smtdist.kernels import pixels as pixel_values
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.cpu.dictionary import body
from smtdist.kernels.mirrored import mirrored_pixels
from smtdist.kernels.types import Whitener
from smtdist.models.dictionary import Dictionary, fit_dictionary, given_dictionary
from smtdist.models.joined import Joined, in_stages
from smtdist.models.model import (
    Model,
    Whitening,
    image_geometry,
    summed_settings,
    unwhitened,
    weights_given,
    whitened,
)
from smtdist.models.plan import finished_bytes
from smtdist.models.provenance import left_out, ordered_digests
from smtdist.models.records import Record, joined
from smtdist.models.ways import require_solvable
from smtdist.statistics.base import State
from smtdist.statistics.covariance import PatchMoment, covariance

STEPS: Final = ("whitening", "dictionary", "statistics", "solve")


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
    if base is None:
        settings = settings.with_atoms(settings.n_atoms if atoms is None else len(atoms))
    first = _checked(source, settings, engine, base)
    with engine.run(STEPS[2:] if base else STEPS, lambda: run_facts(source, settings, atoms, base)):
        records: list[Record] = []
        samples: Digests | None = None
        if base is None:
            moments = PatchMoment(first, settings.augment_flip)
            partial, record = engine.reduce("whitening", moments, source, fingerprint=True)
            whitening = whitening_of(partial.state, first, settings, source.name)
            samples = ordered_digests(partial)
            dictionary, some = _choose_dictionary(
                source, whitened(first, whitening), settings, engine, atoms
            )
            dictionary = dictionary.named(samples)
            records = [record, *([joined("dictionary", some)] if some else [])]
        else:
            whitening, dictionary = base.whitening, base.dictionary
        settings = settings.with_atoms(len(dictionary.grid))
        start = Model(settings, first.geometry, first.scale, whitening, dictionary, None, None)
        start = replace(start, coarse=is_coarse(settings, engine, base))
        statistics, record = start.summed(source, engine, samples)
        records.append(record)
        embedding, record = start.solved(statistics, engine)
        records.append(record)
        return start.finished(statistics, embedding, source.describe(), left_out(source, engine)), records


def fit_joined(
    source: Source, settings: Mapping[str, Configuration], engine: Engine
) -> tuple[Joined, list[Record]]:
    """Fit several models to the same samples, one after the other, as one run.

    Memory: that of the fit that needs most, and the models before it.
    """
    return in_stages(
        list(settings),
        STEPS,
        lambda: joined_facts(source, settings),
        engine,
        lambda name: fit(source, settings[name], engine),
    )


def _checked(source: Source, settings: Configuration, engine: Engine, base: Model | None) -> Whitener:
    """Refuse what cannot end well before any data is read; return what is known of the whitener by then."""
    body()  # refuses a wrong SMTDIST_PRODUCTS
    geometry = image_geometry(settings, source.shape, source.name)
    scale = pixel_values.pixel_scale(source.dtype, settings.pixel_range, source.name)
    if base is not None and geometry != base.geometry:
        raise ModelError(
            f"The model was fitted on patches of {tuple(base.geometry)} (height, width, channels, patch), {source.name} has "
            f"{tuple(geometry)}; fit without {option('base')}."
        )
    if base is not None and scale != base.scale:
        raise ModelError(
            f"The model was fitted on pixels {base.scale}, {source.name} has {source.dtype} pixels, {scale}; convert them, "
            f"or fit without {option('base')}."
        )
    if settings.dictionary_method != "given" and base is None:
        require_solvable(settings.n_atoms, settings, finished_bytes(source, settings), engine)
    return unwhitened(settings, geometry, scale)


def whitening_of(state: State, whitener: Whitener, settings: Configuration, name: str) -> Whitening:
    """Return the whitening by the second moments of the patches of a source; DataError where all are constant."""
    moment, mean = covariance(state, whitener)
    if not moment.any():
        raise DataError(f"All patches of {name} are constant; there is nothing to whiten.")
    matrices = whitening_kernels.whitening_matrices(moment, settings.whitening_reg)
    if settings.dictionary_mirrored:  # symmetric up to rounding, and now exactly
        order = mirrored_pixels(whitener.geometry)
        matrices = tuple((one + one[np.ix_(order, order)]) / 2 for one in matrices)
    return Whitening(moment, *matrices, mean)


def require_given(settings: Configuration, atoms: object) -> None:
    """Refuse atoms that settings do not speak of, and settings that speak of atoms where there are none."""
    if (settings.dictionary_method == "given") != (atoms is not None):
        raise ModelError(
            f"Your own atoms and {equals('dictionary_method', 'given')} must be used together; give both or neither."
        )


def _choose_dictionary(
    source: Source,
    whitener: Whitener,
    settings: Configuration,
    engine: Engine,
    atoms: NDArray[np.floating[Any]] | None,
) -> tuple[Dictionary, list[Record]]:
    require_given(settings, atoms)
    if atoms is not None:
        return given_dictionary(atoms, whitener.geometry.pixels), []
    return fit_dictionary(source, whitener, settings, engine)


def run_facts(
    source: Source, settings: Configuration, atoms: Any = None, base: Model | None = None
) -> Facts:
    """Return what a checkpoint of a fit depends on, piece by piece."""
    given = weights_given(settings) | ({} if atoms is None else {"the atoms": array_hash(atoms)})
    if base is not None:
        return replace(base, settings=settings).facts(source)
    return Facts.of(source, summed_settings(settings), given, settings.names_today())


def joined_facts(source: Source, settings: Mapping[str, Configuration]) -> Facts:
    """Return what a checkpoint of a fit of several models depends on."""
    plain = {name: summed_settings(one) for name, one in settings.items()}
    return Facts.of(source, plain, weights_given(*settings.values()))


def is_coarse(settings: Configuration, engine: Engine, base: Model | None) -> bool:
    """Return whether second-order sums have the coarser weights of the earlier version whose model or folder it is."""
    if settings.difference_order != 2:
        return False
    if base is not None:
        return base.coarse and base.settings.context_size == settings.context_size
    begun = None if engine.checkpoint is None else manifest.begun(engine.checkpoint)
    return begun is not None and manifest.WEIGHTS not in begun.given
