"""Sparse manifold transforms whose code f is learned and made of floats: a coder and its embedding, fitted one after another."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

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
from smtdist.settings import named


def code_of(feature: str) -> Code:
    """Return the code of a name: one of ours, or of an encoder that another package brings (`smtdist.models.plugins`)."""
    if feature in configuration.CODED:
        found: Code = import_module(configuration.CODED[feature]).CODES[feature]
        return found
    cls = brought(ENCODERS, feature)
    if cls is None:
        raise ConfigurationError(
            f"code is {feature!r}; it must be one of {', '.join(configuration.CODED)} here, or the name of an "
            f"encoder that an installed package brings."
        )
    encoder.require_encoder(cls, feature, ManifoldSettings.declared().keys() - {"random_state"})
    return Code(cls, cls.Settings())


AFTERWARDS: Final = ("pool_size", "pool_stride")
"""Settings of an embedding that may change after the fit."""
HIDDEN: Final = frozenset({"pooling_grid", "model"})
"""Settings of coders that are not those of a transform: `code` names the code there, and pooling is of coders alone."""


@dataclass(frozen=True)
class CodedSettings:
    """What a fit of a learned code is told.

    code : its name: l1, s3c, omp, sc, or that of an encoder of another package.
    coder, embedding : the settings of the two steps.
    """

    code: str
    coder: Any
    embedding: ManifoldSettings


def declared(feature: str) -> dict[str, dataclasses.Field[Any]]:
    """Return the settings of both steps of a fit with this feature, as they are declared; the seed is of both.

    >>> declared("l1")["n_atoms"].default, "pooled_feature" in declared("s3c"), "pooled_feature" in declared("l1")
    (1024, True, False)
    """
    code = code_of(feature)
    own = {
        name: field for name, field in code.settings.declared().items() if name not in HIDDEN | code.idle
    }
    return {**own, **ManifoldSettings.declared()}


def coded_settings(code: str = "", **given: Any) -> CodedSettings:
    """Return settings of both steps from one list of names; ConfigurationError for what neither has.

    code : the name of the code; `feature` is another name of it.

    >>> found = coded_settings("s3c", n_atoms=100, n_components=8)
    >>> found.coder.n_atoms, found.embedding.n_components
    (100, 8)
    """
    if "feature" in given and code:
        raise ConfigurationError("code is given twice, also as feature; leave one of them out.")
    code = code or given.pop("feature", "")
    usual = code_of(code).settings
    names = named(given, declared(code), f"SMT with code={code}")
    steps = [
        one.replace(**{name: value for name, value in names.items() if name in one.declared()})
        for one in (usual, ManifoldSettings())
    ]
    return CodedSettings(code, *steps)


def named_settings(model: Manifold) -> dict[str, Any]:
    """Return the settings of both steps under the names that `coded_settings` takes."""
    coder, feature = model.coder.settings, model.coder.feature
    both = vars(coder) | vars(model.settings)
    return {"code": feature, **{name: both[name] for name in declared(feature)}}


def names_of_the_code(feature: str) -> set[str]:
    """Return the names of settings that the code alone has: they stay as they are where a coder is used again.

    >>> sorted(names_of_the_code("l1") & {"n_atoms", "patch_size", "random_state", "context_size"})
    ['n_atoms', 'patch_size']
    """
    return declared(feature).keys() - ManifoldSettings.declared().keys()


def fit_coded(source: Source, settings: CodedSettings, engine: Engine) -> tuple[Manifold, list[Record]]:
    """Fit the coder, then a manifold transform on its codes; returns it with the records of all passes.

    Floats, summed along the fixed tree: the same bits for any number of workers, after losses and after a
    resume. Memory: as either step states before its passes.
    """
    require_pooled(source, settings)
    with engine.run([*fit.STEPS, "statistics", "solve"], lambda: coded_facts(source, settings)):
        coder, first = fit.fit_coder(code_of(settings.code).cls, source, settings.coder, engine)
        found, then = manifold.fit_manifold(source, coder, settings.embedding, engine)
        return found, [*first, *then]


def require_pooled(source: Source, settings: CodedSettings) -> None:
    """Refuse images that either step cannot take, pooling windows that do not fit into them, and too many components."""
    shape = fit.image_shape(source, settings.coder)
    require_entries(settings)
    manifold.require_pools(patch_rows(settings.coder, shape, None), settings.embedding)


def require_entries(settings: CodedSettings) -> None:
    """Refuse more components than the code has entries: what settings say without the data."""
    manifold.require_size(code_of(settings.code).cls.entries(settings.coder), settings.embedding)


def coded_facts(source: Source, settings: CodedSettings) -> Facts:
    """Return what a checkpoint of `fit_coded` depends on."""
    embedding = {f"embedding's {name}": value for name, value in settings.embedding.to_dict().items()}
    return Facts.of(source, {"code": settings.code, **settings.coder.to_dict(), **embedding})


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
