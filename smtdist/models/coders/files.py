"""Coders, and manifold transforms on them, as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import numpy as np

from smtdist.codes.coder import Coder
from smtdist.data.hdf5 import DAMAGE, unlocked
from smtdist.data.netcdf import Group, write_netcdf
from smtdist.errors import DataError, ModelError
from smtdist.models.coders.manifold import Manifold, ManifoldSettings
from smtdist.models.groups import (
    audit_group,
    number,
    read_audit,
    read_solution,
    solution_group,
    without_audit,
)
from smtdist.models.valued import read_statistics, statistics_group

C = TypeVar("C", bound=Coder)
Groups = Mapping[str, Mapping[str, tuple[str, ...]]]

WHITENING: Final[Groups] = {
    "whitening": {"mean": ("pixel",), "whiten": ("pixel", "pixel_"), "unwhiten": ("pixel", "pixel_")},
    "dictionary": {"atoms": ("atom", "pixel")},
}
TRAINING: Final[Groups] = {"training": {"trace": ("round",)}}
KINDS: Final = ("s3c", "sparse")
"""Kinds of coders."""


@dataclass(frozen=True)
class Format(Generic[C]):
    """How the file of one kind of coder is laid out.

    kind : its name in the file; that of a manifold transform on it is "kind-manifold". schema, schema_name : the highest that
    is read, and its attribute. name : in sentences. command : what writes it. groups : variables of the coder beyond whitening
    and atoms, with dimensions. parts, about : arrays and attributes of a coder. build : from both, the coder.
    """

    kind: str
    schema: int
    schema_name: str
    name: str
    command: str
    groups: Groups
    parts: Callable[[C], dict[str, Any]]
    about: Callable[[C], dict[str, Any]]
    build: Callable[[dict[str, Any], Mapping[str, Any]], C]

    @property
    def manifold(self) -> str:
        """Kind of a manifold transform."""
        return f"{self.kind}-manifold"

    def save(self, model: C | Manifold, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
        """Write a coder, or a manifold transform with all of its coder, to one file; return its bytes.

        An existing file is refused unless `overwrite`. Settings are JSON attributes.
        """
        coder: Any = model.coder if isinstance(model, Manifold) else model
        about = {
            "kind": self.manifold if isinstance(model, Manifold) else self.kind,
            self.schema_name: self.schema,
            "configuration": coder.settings.to_json(),
            "shape": json.dumps(coder.shape),
            **self.about(coder),
        }
        parts = {name: getattr(coder, name) for name in ("mean", "whiten", "unwhiten")}
        parts |= {"atoms": coder.basis, **self.parts(coder)}
        groups = [
            (
                name,
                Group({one: (dims, np.asarray(parts[one], np.float64)) for one, dims in variables.items()}),
            )
            for name, variables in {**WHITENING, **self.groups}.items()
        ]
        if isinstance(model, Manifold):
            about["embedding"] = model.settings.to_json()
            about["origin"] = json.dumps(without_audit(model.provenance))
            groups += _groups_of(model)
        return write_netcdf(path, Group(attributes=about), groups, overwrite=overwrite)

    def load(self, path: str | os.PathLike[str], *, statistics: bool = True) -> C | Manifold:
        """Read what `save` wrote; without `statistics` the K x K sums of a transform stay on disk.

        ModelError for a file that is none, or damaged.
        """
        if not Path(path).is_file():
            raise ModelError(f"There is no model file {path}; check the name.")
        try:
            file = unlocked(path)
        except OSError as error:
            raise ModelError(f"{path} is not a readable HDF5 file ({error}); give a {self.name}.") from error
        with file:
            try:
                kind = str(file.attrs.get("kind", ""))
                if kind not in (self.kind, self.manifold):
                    raise ModelError(f"{path} is not a {self.name}; give one written by {self.command}.")
                schema = number(file, self.schema_name)
                if schema > self.schema:
                    raise ModelError(
                        f"{path} has the schema {schema} of {self.name}s, this version reads up to {self.schema}; install a "
                        f"newer smtdist."
                    )
                return self._read(file, kind == self.manifold, statistics)
            except (*DAMAGE, DataError) as error:
                raise ModelError(f"{path} is not a whole {self.name} ({error}); fit it again.") from error

    def load_coder(self, path: str | os.PathLike[str]) -> C:
        """Read a coder, also that of a manifold transform."""
        found = self.load(path, statistics=False)
        coder: Any = found.coder if isinstance(found, Manifold) else found
        return cast(C, coder)

    def _read(self, file: Any, embedded: bool, statistics: bool) -> C | Manifold:
        found: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for group, variables in {**WHITENING, **self.groups}.items():
            for name, dimensions in variables.items():
                values = np.asarray(file[group][name][()], np.float64)
                if not np.isfinite(values).all():
                    raise ValueError(f"{name} holds numbers that are not finite")
                if values.ndim != len(dimensions):
                    raise ValueError(f"{name} has the shape {values.shape}")
                for dimension, length in zip(dimensions, values.shape, strict=True):
                    if sizes.setdefault(dimension.removesuffix("_"), length) != length:
                        raise ValueError(f"{name} has the shape {values.shape} beside {sizes}")
                found[name] = values
        about = dict(file.attrs)
        about["shape"] = tuple(json.loads(about["shape"]))
        coder = self.build(found, about)
        return _read_manifold(file, coder, statistics) if embedded else coder


def _groups_of(model: Manifold) -> list[tuple[str, Group]]:
    """Return what the file of a transform holds beside its coder."""
    groups = [("embedding", solution_group(model.embedding, "code"))] if model.embedding else []
    sums = model.statistics
    if sums is None:
        return groups
    groups.append(("statistics", statistics_group(sums)))
    if "audit" in model.provenance:
        groups.append(("audit", audit_group(model.provenance["audit"])))
    return groups


def _read_manifold(file: Any, coder: Coder, statistics: bool) -> Manifold:
    settings = ManifoldSettings.from_json(str(file.attrs["embedding"]))
    embedding = read_solution(file["embedding"])
    if embedding.components.shape[1:] != (coder.size,) or not np.isfinite(embedding.components).all():
        raise ValueError(
            f"components have the shape {embedding.components.shape} beside {coder.size} codes of the coder"
        )
    provenance = json.loads(file.attrs["origin"]) if "origin" in file.attrs else {}
    if "audit" in file:
        provenance["audit"] = read_audit(file["audit"])
    model = Manifold(coder, settings, embedding, None, provenance)
    if not statistics or "statistics" not in file:
        return model
    sums = read_statistics(file["statistics"], coder.size, model.basis, provenance.get("audit", ()))
    return replace(model, statistics=sums)


def kind_in(path: str | os.PathLike[str]) -> str:
    """Return the kind that a file says it is; nothing where it says none or cannot be read."""
    try:
        with unlocked(path) as file:
            return str(file.attrs.get("kind", ""))
    except DAMAGE:
        return ""


def is_coder(path: str | os.PathLike[str]) -> bool:
    """Return whether a file says that it holds a coder of patches, or a manifold transform on one."""
    kind = kind_in(path)
    return kind.removesuffix("-manifold") in KINDS or kind.startswith("encoder-")
