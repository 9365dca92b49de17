"""Coders, and manifold transforms on them, as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import h5netcdf
import numpy as np

from smtdist.data.hdf5 import DAMAGE, unlocked
from smtdist.data.writing import lenient, whole_file
from smtdist.errors import ModelError
from smtdist.models.coders.coder import Coder
from smtdist.models.coders.manifold import Manifold, ManifoldSettings

C = TypeVar("C", bound=Coder)
Groups = Mapping[str, Mapping[str, tuple[str, ...]]]

WHITENING: Final[Groups] = {
    "whitening": {"mean": ("pixel",), "whiten": ("pixel", "pixel_"), "unwhiten": ("pixel", "pixel_")},
    "dictionary": {"atoms": ("atom", "pixel")},
}
TRAINING: Final[Groups] = {"training": {"trace": ("round",)}}
KINDS: Final = ("s3c", "sparse")
"""Kinds of coders."""
_EMBEDDING: Final[Groups] = {
    "embedding": {"components": ("component", "code"), "eigenvalues": ("component",)}
}


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
        embedded = isinstance(model, Manifold)
        coder: Any = model.coder if isinstance(model, Manifold) else model
        about = {
            "kind": self.manifold if embedded else self.kind,
            self.schema_name: self.schema,
            "configuration": coder.settings.to_json(),
            "shape": json.dumps(coder.shape),
            **self.about(coder),
        }
        parts = {name: getattr(coder, name) for name in ("mean", "whiten", "unwhiten")}
        parts |= {"atoms": coder.basis, **self.parts(coder)}
        if isinstance(model, Manifold):
            parts |= {"components": model.components, "eigenvalues": model.eigenvalues}
            about["embedding"] = model.settings.to_json()
        with whole_file(path, overwrite) as temporary, lenient(temporary) as raw:
            with h5netcdf.File(raw, "w") as file:
                file.attrs.update(about)
                for group, variables in self._groups(embedded).items():
                    _write_group(file.create_group(group), variables, parts)
            raw.check()
        return Path(path).stat().st_size

    def load(self, path: str | os.PathLike[str]) -> C | Manifold:
        """Read what `save` wrote; ModelError for a file that is none, or damaged."""
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
                schema = int(np.ravel(file.attrs[self.schema_name])[0])
                if schema > self.schema:
                    raise ModelError(
                        f"{path} has the schema {schema} of {self.name}s, this version reads up to {self.schema}; install a "
                        f"newer smtdist."
                    )
                return self._read(file, kind == self.manifold)
            except DAMAGE as error:
                raise ModelError(f"{path} is not a whole {self.name} ({error}); fit it again.") from error

    def load_coder(self, path: str | os.PathLike[str]) -> C:
        """Read a coder, also that of a manifold transform."""
        found = self.load(path)
        coder: Any = found.coder if isinstance(found, Manifold) else found
        return cast(C, coder)

    def _groups(self, embedded: bool) -> Groups:
        return {**WHITENING, **self.groups, **(_EMBEDDING if embedded else {})}

    def _read(self, file: Any, embedded: bool) -> C | Manifold:
        found: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for group, variables in self._groups(embedded).items():
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
        if not embedded:
            return coder
        if sizes["code"] != coder.size:
            raise ValueError(f"components are of {sizes['code']} codes beside {coder.size} of the coder")
        settings = ManifoldSettings.from_json(str(about["embedding"]))
        return Manifold(coder, settings, found["components"], found["eigenvalues"])


def _write_group(group: Any, variables: Mapping[str, tuple[str, ...]], parts: Mapping[str, Any]) -> None:
    for name, dimensions in variables.items():
        values = np.asarray(parts[name], np.float64)
        for dimension, length in zip(dimensions, values.shape, strict=True):
            if dimension not in group.dimensions:
                group.dimensions[dimension] = length
        group.create_variable(name, dimensions, values.dtype, data=values)


def kind_in(path: str | os.PathLike[str]) -> str:
    """Return the kind that a file says it is; nothing where it says none or cannot be read."""
    try:
        with unlocked(path) as file:
            return str(file.attrs.get("kind", ""))
    except DAMAGE:
        return ""


def is_coder(path: str | os.PathLike[str]) -> bool:
    """Return whether a file says that it holds a coder of patches, or a manifold transform on one."""
    return kind_in(path).removesuffix("-manifold") in KINDS
