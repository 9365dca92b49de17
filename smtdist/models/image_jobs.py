"""Fits of models of images: of the transform with a binary code or a learned one, or of a learned code alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist import configuration
from smtdist.configuration import Configuration
from smtdist.data import locations, opening, showing
from smtdist.data.source import Source
from smtdist.data.views import limited
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, equals, option
from smtdist.kernels import convergence
from smtdist.models import coded, kinds, merge, plugins, store
from smtdist.models.coders import fit as coder_fit
from smtdist.models.coders import manifold
from smtdist.models.coders.manifold import Manifold, ManifoldSettings
from smtdist.models.components import require_windows
from smtdist.models.fit import fit, fit_joined, joined_facts, run_facts
from smtdist.models.jobs import SMT, Job, Request, suiting
from smtdist.models.model import Model, finished_bytes
from smtdist.models.provenance import Record
from smtdist.settings import named

FROZEN: Final = (
    "patch_size",
    "subtract_mean",
    "mean_context",
    "whitening_reg",
    "whitening_covariance",
    "min_contrast",
    "to_grayscale",
    "pixel_range",
    "resize",
    "center_crop",
    "channels",
    "n_atoms",
    "dictionary_method",
    "dictionary_cosine",
    "dictionary_rounds",
    "dictionary_n_init",
    "dictionary_samples",
    "dictionary_mirrored",
)
"""Settings that whitening and dictionary were made with, and that a fit from a model therefore keeps."""


@dataclasses.dataclass(frozen=True)
class Images(Job):
    """A fit of transforms with binary codes. base : the model whose whitening and dictionary stay. atoms : the user's."""

    base: Model | None = None
    atoms: NDArray[np.floating[Any]] | None = None


def job(request: Request) -> Job:
    """Open and check a fit of images; which it is follows from the name, the code and the model that it starts from."""
    code = learned_code(request.settings) if request.model == SMT else ""
    on_coder = request.from_model is not None and store.kind_at(request.from_model) in kinds.CODERS
    if request.model == SMT and not code and not on_coder:
        return _binary(request)
    idle = [option(name) for name in ("preset", "atoms") if getattr(request, name)]
    if code and not on_coder and request.from_model:
        idle.append(option("base"))
    if idle:
        what = equals("code", code) if code else "A learned code"
        raise ConfigurationError(f"{what} cannot be combined with {' and '.join(idle)}; leave it out.")
    if request.model != SMT:
        return _coder(request)
    return _embedding(request, request.from_model) if request.from_model else _coded(request)


def learned_code(settings: Mapping[str, Any]) -> str:
    """Return the learned code that settings ask for, one of ours or of another package; "" for a binary one."""
    code = settings.get("code", settings.get("feature"))
    if code is None or code in configuration.BINARY:
        return ""
    if plugins.is_learned(code):
        return str(code)
    raise ConfigurationError(f"code is {code!r}; it must be {configuration.CODES}.")


def _opened(request: Request, settings: Any = None) -> Source:
    if request.dataset is None:
        raise ConfigurationError(
            f"Missing option {option('dataset')}; name the images in the file. For text give {option('model', 'words')}, for "
            f"rows of a table {option('model', 'points')}, for clips {option('model', 'video')}."
        )
    where = locations.full_location(list(request.data))
    with suiting():
        whole = opening.open_source(where, request.dataset, settings, skip_damaged=request.skip_damaged)
    return limited(whole, request.limit)


def _coder(request: Request) -> Job:
    """Return a fit of a learned code alone."""
    code = coded.code_of(request.model)
    settings = code.settings.replace(**request.settings)
    source = _opened(request)
    with suiting():
        coder_fit.require_pooling(source, settings, settings.pooling_grid)
    return Job(
        source,
        partial(coder_fit.fit_coder, code.cls, source, settings),
        lambda: Facts.of(source, code.cls.facts(settings), names=settings.names_today()),
        pictured=True,
        advice=_of_rounds,
    )


def _coded(request: Request) -> Job:
    """Return a fit of a learned code, and of a transform of it."""
    settings = coded.coded_settings(**request.settings)
    coded.require_entries(settings)
    source = _opened(request)
    with suiting():
        coded.require_pooled(source, settings)
    return coded_job(source, settings)


def coded_job(source: Source, settings: coded.CodedSettings) -> Job:
    """Return a fit of a learned code to images, and of a transform of it."""
    return Job(
        source,
        partial(coded.fit_coded, source, settings),
        lambda: coded.coded_facts(source, settings),
        settings.embedding.n_components + settings.embedding.drop_components,
        pictured=True,
        advice=_of_rounds,
    )


def _embedding(request: Request, path: Path) -> Job:
    """Return a fit of a transform of the code at a path; settings of a transform there stay but for those that are given."""
    present = store.load(path, statistics=False)
    coder = present.coder
    base = ManifoldSettings() if coder is present else present.settings
    # the code that the file has anyway
    given = {
        name: value
        for name, value in request.settings.items()
        if name not in ("code", "feature") or value != coder.feature
    }
    names = named(given, coded.declared(coder.feature), "a transform")
    fixed = sorted(names.keys() - ManifoldSettings.declared().keys())
    if fixed:
        raise ConfigurationError(
            f"{option('base')} keeps the code with its whitening and dictionary, so its settings ({', '.join(fixed)}) "
            f"cannot be set; leave them out."
        )
    start = Manifold(coder, base.replace(**given))
    source = _opened(request)
    start.require_like(source)
    with suiting():
        require_windows(start.settings, *start.grid)
    manifold.require_size(start.coder.size, start.settings)
    return Job(
        source,
        partial(merge.fit_alone, start, source),
        lambda: start.facts(source),
        start.wanted,
        pictured=True,
    )


def _binary(request: Request) -> Job:
    """Return a fit of a transform with binary codes, or of several side by side where a preset has them."""
    if request.from_model is not None and request.atoms is not None:
        raise ConfigurationError(f"{option('base')} brings its dictionary; leave out {option('atoms')}.")
    base = (
        None if request.from_model is None else store.load(request.from_model, kind=Model, statistics=False)
    )
    atoms = None if request.atoms is None else read_atoms(request.atoms)
    changes, n_atoms = Configuration.named(request.settings), None if atoms is None else len(atoms)
    given = set(changes)
    if atoms is not None:
        changes.setdefault("dictionary_method", "given")
    if base is not None:
        if request.preset:
            raise ConfigurationError(f"{option('base')} brings its own settings; leave out the preset.")
        if fixed := sorted(given & set(FROZEN)):
            raise ConfigurationError(
                f"{option('base')} keeps whitening and dictionary, so other settings ({', '.join(fixed)}) cannot be set; "
                f"leave them out."
            )
        # a mean that follows the context must not follow it to another one
        settings = base.settings.replace(mean_context=base.settings.resolved_mean_context, **changes)
        each = {"": settings.with_atoms(len(base.dictionary.grid))}
    else:
        starts = configuration.presets(request.preset) if request.preset else {"": Configuration()}
        if atoms is not None and len(starts) > 1:
            raise ConfigurationError(
                f"The models of the preset {request.preset} have an own dictionary each; leave out {option('atoms')}."
            )
        made = {name: start.replace(**changes) for name, start in starts.items()}
        each = {name: one.with_atoms(n_atoms or one.n_atoms) for name, one in made.items()}
    source = _opened(request, next(iter(each.values())))
    if request.preset is None and base is None:
        each = {name: for_images(settings, source, given) for name, settings in each.items()}
    with suiting():  # refused before a checkpoint folder is this run's
        kept = (settings for settings in each.values() if settings.keep_statistics)
        stored = sum(finished_bytes(source, settings, n_atoms) for settings in kept)
    return dataclasses.replace(binary_job(source, each, atoms, base), stored_bytes=stored)


def binary_job(
    source: Source,
    each: Mapping[str, Configuration],
    atoms: NDArray[np.floating[Any]] | None,
    base: Model | None,
) -> Images:
    """Return a fit of a transform with binary codes to images, or of several side by side; {"": settings} for one model."""
    run: Callable[[Engine], tuple[Any, list[Record]]]
    if len(each) > 1:
        run, facts = partial(fit_joined, source, each), partial(joined_facts, source, each)
    else:
        (alone,) = each.values()
        run = partial(fit, source, alone, atoms=atoms, base=base)
        facts = partial(run_facts, source, alone, atoms, base)
    return Images(
        source,
        run,
        facts,
        pictured=True,
        advice=_of_dictionaries if base is None else Job.advice,
        seed=next(iter(each.values())).random_state,
        each=each,
        base=base,
        atoms=atoms,
    )


def _of_rounds(model: Any) -> list[str]:
    return [convergence.advice(model.summary())]


def _of_dictionaries(model: Any) -> list[str]:
    each = showing.parts(model) or {"": model}
    return [convergence.advice(part.summary(), "dictionary_rounds") for part in each.values()]


def read_atoms(path: Path) -> NDArray[np.floating[Any]]:
    """Read the user's atoms, (atoms, pixels), from an .npy file."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"The file {path} does not exist; give the atoms as an .npy file.") from None
    except (OSError, ValueError, EOFError) as error:
        why = "" if "pickle" in str(error) else f" ({error})"  # NumPy advises to load it unsafely
        raise DataError(f"{path} is not a readable .npy file{why}; write it with numpy.save.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind != "f":
        raise DataError(
            f"{path} does not hold atoms; give a floating-point array of the shape (atoms, pixels)."
        )
    return array


def for_images(settings: Configuration, source: Source, given: Container[str]) -> Configuration:
    """Return the settings with the defaults that these images have, but for those that were given."""
    defaults = configuration.defaults_for(source.shape, settings.to_grayscale)
    follow = {name: getattr(defaults, name) for name in configuration.GREY if name not in given}
    return settings.replace(**follow).with_atoms(settings.n_atoms)
