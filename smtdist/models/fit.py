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
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.cpu.dictionary import body
from smtdist.kernels.mirrored import mirrored_pixels
from smtdist.kernels.types import Whitener
from smtdist.models.dictionary import from_sketch, given_dictionary
from smtdist.models.joined import Joined, in_stages
from smtdist.models.model import (
    Model,
    Whitening,
    finished_bytes,
    summed_settings,
    weights_given,
    whitened,
    whitener_for,
)
from smtdist.models.provenance import Record, joined, left_out, ordered_digests
from smtdist.models.random_patches import draw
from smtdist.models.solving import require_solvable
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
    body()  # refuses a wrong SMTDIST_PRODUCTS
    first = whitener_for(source, settings)
    geometry, scale = first.geometry, first.scale
    if base is None:
        require_given(settings, atoms)
        settings = settings.with_atoms(settings.n_atoms if atoms is None else len(atoms))
        if atoms is None:
            require_solvable(settings.n_atoms, settings, finished_bytes(source, settings), engine)
    elif geometry != base.geometry:
        raise ModelError(
            f"The model was fitted on patches of {tuple(base.geometry)} (height, width, channels, patch), {source.name} has "
            f"{tuple(geometry)}; fit without {option('base')}."
        )
    elif scale != base.scale:
        raise ModelError(
            f"The model was fitted on pixels {base.scale}, {source.name} has {source.dtype} pixels, {scale}; convert them, "
            f"or fit without {option('base')}."
        )
    with engine.run(STEPS[2:] if base else STEPS, lambda: run_facts(source, settings, atoms, base)):
        records: list[Record] = []
        samples: Digests | None = None
        if base is None:
            moments = PatchMoment(first, settings.augment_flip)
            partial, record = engine.reduce("whitening", moments, source, fingerprint=True)
            whitening = whitening_of(partial.state, first, settings, source.name)
            samples = ordered_digests(partial)
            records = [record]
            if atoms is not None:
                dictionary = given_dictionary(atoms, geometry.pixels)
            else:
                whitener = whitened(first, whitening)
                sketch, looks = draw(source, whitener, settings, engine, samples)
                dictionary, some = from_sketch(sketch, source, whitener, settings, engine)
                records.append(joined("dictionary", [*looks, *some]))
            dictionary = dictionary.named(samples)
        else:
            whitening, dictionary = base.whitening, base.dictionary
        settings = settings.with_atoms(len(dictionary.grid))
        start = Model(settings, geometry, scale, whitening, dictionary, None, None)
        # second-order sums go on with the coarser weights of the earlier version whose model or folder it is
        if settings.difference_order == 2 and base is not None:
            start = replace(
                start, coarse=base.coarse and base.settings.context_size == settings.context_size
            )
        elif settings.difference_order == 2 and engine.checkpoint is not None:
            begun = manifest.begun(engine.checkpoint)
            start = replace(start, coarse=begun is not None and manifest.WEIGHTS not in begun.given)
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
    return Facts.of(source, plain, weights_given(*settings.values()), Configuration.names_today())
