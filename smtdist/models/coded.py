"""Sparse manifold transforms whose code f is learned and made of floats: a coder and its embedding, fitted one after another."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np

from smtdist import configuration
from smtdist.codes import encoder
from smtdist.codes.coder import Code, Coder, Record, patch_rows
from smtdist.data.netcdf import Group
from smtdist.data.source import Source
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, ModelError, equals
from smtdist.models import store, valued
from smtdist.models.coders import fit, manifold
from smtdist.models.coders.manifold import Manifold, ManifoldSettings
from smtdist.models.components import require_windows
from smtdist.models.plugins import ENCODERS, brought, is_brought
from smtdist.models.store import Array
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
    names = named(given, declared(code), f"SMT with {equals('code', code)}")
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
    patches = patch_rows(settings.coder, shape, None)
    require_windows(settings.embedding, *manifold.coded_grid(patches, settings.embedding))


def require_entries(settings: CodedSettings) -> None:
    """Refuse more components than the code has entries: what settings say without the data."""
    manifold.require_size(code_of(settings.code).cls.entries(settings.coder), settings.embedding)


def coded_facts(source: Source, settings: CodedSettings) -> Facts:
    """Return what a checkpoint of `fit_coded` depends on."""
    embedding = {f"embedding's {name}": value for name, value in settings.embedding.to_dict().items()}
    names = settings.coder.names_today() | {
        f"embedding's {name}": f"embedding's {today}"
        for name, today in settings.embedding.names_today().items()
    }
    return Facts.of(source, {"code": settings.code, **settings.coder.to_dict(), **embedding}, names=names)


_WHITENING: Final[Mapping[str, tuple[str, ...]]] = {
    "mean": ("pixel",),
    "whiten": ("pixel", "pixel_"),
    "unwhiten": ("pixel", "pixel_"),
}
_ON_A_CODER: Final = "-manifold"
"""Behind the kind of a coder, the kind of a transform on it."""


def _declared_arrays(cls: type[Coder]) -> dict[str, dict[str, Array]]:
    """Return the arrays of the files of a class of coders, by group; atoms are unit rows in whitened space."""
    groups = {"whitening": _WHITENING, "dictionary": {"atoms": ("atom", "pixel")}, **cls.groups()}
    return {
        group: {name: Array(dims, dtype="f8") for name, dims in arrays.items()}
        for group, arrays in groups.items()
    }


def stored(model: Any) -> Iterator[tuple[str, Group]]:
    """Yield what the file of a coder holds, or that of a transform with all of its coder; settings are JSON."""
    coder: Any = model.coder
    alone = coder is model
    arrays, own = coder.written()
    about = {
        "kind": coder.kind() + ("" if alone else _ON_A_CODER),
        **store.version(coder.STORED_AS),
        "configuration": coder.settings.to_json(),
        "shape": json.dumps(coder.shape),
        "provenance": json.dumps(coder.provenance),
        **own,
    }
    if isinstance(coder, encoder.PatchEncoder):
        about["probe"] = coder.probe().ravel()
    if not alone:
        about["embedding"] = model.settings.to_json()
        about["origin"] = json.dumps(store.without_audit(model.provenance))
    yield "", Group(attributes=about)
    values = {name: getattr(coder, name) for name in _WHITENING} | {"atoms": coder.basis, **arrays}
    for group, declared_arrays in _declared_arrays(type(coder)).items():
        yield group, store.packed(declared_arrays, values)
    if not alone:
        yield from store.solved_groups(model, model.embedding, valued.statistics_group, "code")


def restored(file: Any, statistics: bool) -> Coder | Manifold:
    """Read what `stored` yielded; without `statistics` the K x K sums of a transform stay on disk."""
    kind = str(file.attrs["kind"]).removesuffix(_ON_A_CODER)
    name = kind.removeprefix(encoder.FILE_KIND)
    if name == kind:
        classes = {cls.kind(): cls for cls in (code_of(feature).cls for feature in configuration.CODED)}
        return restored_as(classes[kind], file, statistics)
    if name not in configuration.CODED and not is_brought(ENCODERS, name):
        raise ModelError(
            f"{file.filename} has codes of the encoder {name}, which no installed package brings; install the one that does."
        )
    return restored_as(code_of(name).cls, file, statistics)


def restored_as(cls: Any, file: Any, statistics: bool) -> Coder | Manifold:
    """Read a coder of a class, or a transform on one."""
    about = dict(file.attrs)
    groups, sizes = _declared_arrays(cls), json.loads(str(about["configuration"]))
    store.require(file, groups, atom=sizes["units"], round=sizes.get("rounds", 0))
    arrays = {
        name: array
        for group, declared_arrays in groups.items()
        for name, array in store.arrays_in(file[group], declared_arrays, np.float64).items()
    }
    coder: Coder = cls(
        shape=tuple(json.loads(about["shape"])),
        **{name: arrays[name] for name in _WHITENING},
        **cls.read(arrays, about),
        provenance=json.loads(about["provenance"]),
    )
    if isinstance(coder, encoder.PatchEncoder) and "probe" in about:
        coder.require_probe(about["probe"], file.filename)
    if not str(about["kind"]).endswith(_ON_A_CODER):
        return coder
    settings = ManifoldSettings.from_json(str(about["embedding"]))
    store.require_all(file, {}, "code", valued.statistics_arrays(), code=coder.size)
    provenance = store.with_audit(file, json.loads(about.get("origin", "{}")))
    model = Manifold(coder, settings, store.read_solution(file["embedding"]), None, provenance)
    if not statistics or "statistics" not in file:
        return model
    sums = valued.read_statistics(file["statistics"], model.basis, provenance.get("audit", ()))
    return dataclasses.replace(model, statistics=sums)
