"""Sparse manifold transforms whose code f is learned and made of floats: a coder and its embedding, fitted one after another."""

from __future__ import annotations

import dataclasses
import os
import types
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from smtdist import configuration
from smtdist.codes import encoder
from smtdist.codes.coder import Code, Coder, Record, patch_rows
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError
from smtdist.models.coders import fit, manifold
from smtdist.models.coders.files import CoderFiles, kind_in
from smtdist.models.coders.manifold import Manifold, ManifoldSettings
from smtdist.models.plugins import ENCODERS, brought, is_brought
from smtdist.models.transform import Represents


def code_of(feature: str) -> Code:
    """Return the code of a name: one of ours, or of an encoder that another package brings (`smtdist.models.plugins`)."""
    if feature in configuration.CODED:
        found: Code = import_module(configuration.CODED[feature]).CODES[feature]
        return found
    cls = brought(ENCODERS, feature)
    if cls is None:
        raise ConfigurationError(
            f"feature is {feature!r}; it must be one of {', '.join(configuration.CODED)} here, or the name of an "
            f"encoder that an installed package brings."
        )
    encoder.require_encoder(cls, feature, EMBEDDING.keys() - {"seed"})
    return Code(cls, cls.Settings())


EMBEDDING: Final = {field.name: field.name for field in dataclasses.fields(ManifoldSettings)}
"""Names of the embedding's settings, as `_coder_names` has those of a coder."""
AFTERWARDS: Final = ("pool_size", "pool_stride")
"""Settings of an embedding that may change after the fit."""
HIDDEN: Final = frozenset({"feature", "pooling", "model", "units"})
"""Settings of coders that have no name of their own in public: what they say is said by `feature`, or is of coders alone."""


@dataclass(frozen=True)
class CodedSettings:
    """What a fit of a learned code is told.

    feature : the name of the code: l1, s3c, omp, sc, or that of an encoder of another package.
    coder, embedding : the settings of the two steps.
    """

    feature: str
    coder: Any
    embedding: ManifoldSettings


def coded_settings(feature: str, **given: Any) -> CodedSettings:
    """Return settings of both steps from one list of names; ConfigurationError for what neither has.

    Names are those of the coder (`dictionary` is its units, `expectation` what S3C takes of its posterior)
    and of the embedding; `seed` is of both, and `patch` of the coder.

    >>> found = coded_settings("s3c", dictionary=100, n_components=8)
    >>> found.coder.units, found.embedding.n_components
    (100, 8)
    """
    own, others = EMBEDDING, _coder_names(feature)
    names = own | others
    for name in given:
        if name not in names and name != "units":
            raise ConfigurationError(
                f"There is no setting {name!r} with feature={feature}; there are {', '.join(sorted(names))}."
            )
    if "units" in given and "dictionary" in given:
        raise ConfigurationError(
            f"With feature={feature}, units and dictionary are two names of one setting; give dictionary alone."
        )
    coder = {
        others.get(name, name): value for name, value in given.items() if name in others or name not in own
    }
    embedding = {name: value for name, value in given.items() if name in own}
    return CodedSettings(
        feature, code_of(feature).settings.replace(**coder), ManifoldSettings().replace(**embedding)
    )


def named_settings(model: Manifold) -> dict[str, Any]:
    """Return the settings of both steps under the names that `coded_settings` takes."""
    settings, feature = model.coder.settings, model.coder.feature
    given = {name: getattr(settings, own) for name, own in _coder_names(feature).items()}
    return {"feature": feature, **given, **dataclasses.asdict(model.settings)}


def described_coded(feature: str) -> dict[str, dict[str, Any]]:
    """Return every setting of a fit with this feature with its default, the values it may have, and what it means.

    >>> described_coded("l1")["dictionary"]["default"], described_coded("s3c")["moment"]["values"]
    (1024, 'one of second, centred')
    """
    steps = (code_of(feature).settings, _coder_names(feature)), (ManifoldSettings(), EMBEDDING)
    found = {}
    for settings, names in steps:
        meanings = configuration.meanings_of(type(settings))
        hints = get_type_hints(type(settings))
        for name, own in names.items():
            found[name] = {
                "default": getattr(settings, own),
                "values": _values(hints[own], settings.CHOICES.get(own)),
                "meaning": meanings.get(own, ""),
            }
    return found


def _values(kind: Any, choices: tuple[Any, ...] | None) -> str:
    """Say which values a setting may have, by its type.

    >>> _values(float, None), _values(tuple[float, float] | None, None), _values(bool, (True, False))
    ('a number', 'a list of numbers, or null', 'true or false')
    """
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    null = ", or null" if type(None) in kinds else ""
    if bool in kinds:
        return "true or false"
    if choices:
        return f"one of {', '.join(str(one) for one in choices if one is not None)}{null}"
    words = {int: "a whole number", float: "a number", str: "a word"}
    return " or ".join(words.get(one, "a list of numbers") for one in kinds if one is not type(None)) + null


def names_of_the_code(feature: str) -> set[str]:
    """Return the names of settings that the code alone has: they stay as they are where a coder is used again.

    >>> sorted(names_of_the_code("l1") & {"dictionary", "patch", "seed", "context"})
    ['dictionary', 'patch']
    """
    return _coder_names(feature).keys() - EMBEDDING


def _coder_names(feature: str) -> dict[str, str]:
    """Return the names by which this module knows a coder's settings, and what its class calls them."""
    code = code_of(feature)
    public = {own: name for name, own in code.renamed.items()}
    owns = [field.name for field in dataclasses.fields(code.settings)]
    return {public.get(own, own): own for own in owns if own in public or own not in HIDDEN | code.idle}


def fit_coded(source: Source, settings: CodedSettings, engine: Engine) -> tuple[Manifold, list[Record]]:
    """Fit the coder, then a manifold transform on its codes; returns it with the records of all passes.

    Floats, summed along the fixed tree: the same bits for any number of workers, after losses and after a
    resume. Memory: as either step states before its passes.
    """
    require_pooled(source, settings)
    with engine.run([*fit.STEPS, "statistics", "solve"], lambda: coded_facts(source, settings)):
        coder, first = fit.fit_coder(code_of(settings.feature).cls, source, settings.coder, engine)
        found, then = manifold.fit_manifold(source, coder, settings.embedding, engine)
        return found, [*first, *then]


def require_pooled(source: Source, settings: CodedSettings) -> None:
    """Refuse images that either step cannot take, pooling windows that do not fit into them, and too many components."""
    shape = fit.image_shape(source, settings.coder)
    require_entries(settings)
    manifold.require_pools(patch_rows(settings.coder, shape, None), settings.embedding)


def require_entries(settings: CodedSettings) -> None:
    """Refuse more components than the code has entries: what settings say without the data."""
    manifold.require_size(code_of(settings.feature).cls.entries(settings.coder), settings.embedding)


def coded_facts(source: Source, settings: CodedSettings) -> Facts:
    """Return what a checkpoint of `fit_coded` depends on."""
    embedding = {
        f"embedding's {name}": value for name, value in dataclasses.asdict(settings.embedding).items()
    }
    return Facts.of(source, {"code": settings.feature, **dataclasses.asdict(settings.coder), **embedding})


def files_of(model: Coder | Manifold) -> CoderFiles[Any]:
    """Return how the file of a coder, or of a transform on one, is written and read."""
    return CoderFiles(type(model.coder if isinstance(model, Manifold) else model))


def load_coded(path: str | os.PathLike[str], *, statistics: bool = False) -> Coder | Manifold:
    """Read a coder of any kind, or a transform on one, its sums only if they are asked for.

    ModelError for a file that is neither, or damaged.
    """
    kind = kind_in(path).removesuffix("-manifold")
    if kind.startswith(encoder.FILE_KIND):
        name = kind.removeprefix(encoder.FILE_KIND)
        if name not in configuration.CODED and not is_brought(ENCODERS, name):
            raise ModelError(
                f"{path} has codes of the encoder {name}, which no installed package brings; install the one that does."
            )
        return CoderFiles(code_of(name).cls).load(path, statistics=statistics)
    for feature in configuration.CODED:
        files = CoderFiles(code_of(feature).cls)
        if files.layout.kind == kind:
            return files.load(path, statistics=statistics)
    raise ModelError(f"{path} is not a coder of patches; give one written by smtdist fit --model.")


def changeable(model: Coder | Represents) -> tuple[str, ...]:
    """Return the settings that may change after the fit: how the codes of a coder are made and pooled, how embeddings are."""
    return model.CHANGEABLE if isinstance(model, Coder) else AFTERWARDS
