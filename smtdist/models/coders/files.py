"""Coders, and manifold transforms on them, as open HDF5/NetCDF4 files: written whole or not at all, read without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar, cast

import numpy as np

from smtdist.codes.coder import Coder
from smtdist.codes.encoder import PatchEncoder
from smtdist.data import guarded, hdf5
from smtdist.data.netcdf import Group, write_netcdf
from smtdist.errors import DataError, ModelError
from smtdist.models import groups as file_groups
from smtdist.models import kinds, layouts, valued
from smtdist.models.coders.manifold import Manifold, ManifoldSettings

C = TypeVar("C", bound=Coder)
SCHEMA: Final = 1
"""The highest version of the layout of a coder's file, of all kinds."""
HELD: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "whitening": {"mean": ("pixel",), "whiten": ("pixel", "pixel_"), "unwhiten": ("pixel", "pixel_")},
    "dictionary": {"atoms": ("atom", "pixel")},
}
"""Groups that the files of all coders have."""


class CoderFiles(Generic[C]):
    """How the files of one class of coders, and of manifold transforms on them, are written and read.

    Settings are JSON attributes. Groups: `/whitening` (mean, whiten, unwhiten), `/dictionary` (atoms, unit
    rows in whitened space), those that the class names (`Coder.layout`) and, of a transform, `/embedding`,
    `/statistics` and `/audit`.
    """

    def __init__(self, cls: type[C]) -> None:
        self.cls = cls
        self.layout = cls.layout()

    @property
    def manifold(self) -> str:
        """Kind of a manifold transform."""
        return f"{self.layout.kind}-manifold"

    def save(self, model: C | Manifold, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
        """Write a coder, or a manifold transform with all of its coder, to one file; return its bytes.

        An existing file is refused unless `overwrite`. Settings are JSON attributes.
        """
        coder: Any = model.coder if isinstance(model, Manifold) else model
        arrays, own = coder.written()
        about = {
            "kind": self.manifold if isinstance(model, Manifold) else self.layout.kind,
            self.layout.schema: SCHEMA,
            "configuration": coder.settings.to_json(),
            "shape": json.dumps(coder.shape),
            "provenance": json.dumps(coder.provenance),
            **own,
        }
        if isinstance(coder, PatchEncoder):
            about["probe"] = coder.probe().ravel()
        parts = {name: getattr(coder, name) for name in ("mean", "whiten", "unwhiten")}
        parts |= {"atoms": coder.basis, **arrays}
        groups = [
            (
                name,
                Group({one: (dims, np.asarray(parts[one], np.float64)) for one, dims in variables.items()}),
            )
            for name, variables in {**HELD, **self.layout.groups}.items()
        ]
        if isinstance(model, Manifold):
            about["embedding"] = model.settings.to_json()
            about["origin"] = json.dumps(file_groups.without_audit(model.provenance))
            groups += _groups_of(model)
        return write_netcdf(path, Group(attributes=about), groups, overwrite=overwrite)

    def load(self, path: str | os.PathLike[str], *, statistics: bool = True) -> C | Manifold:
        """Read what `save` wrote; without `statistics` the K x K sums of a transform stay on disk.

        ModelError for a file that is none, or damaged.
        """
        called, damage = self.layout.called, (*hdf5.DAMAGE, DataError)
        with file_groups.reading(path, called, f"a {called}", damage) as file:
            kind = str(file.attrs.get("kind", ""))
            if kind not in (self.layout.kind, self.manifold):
                raise ModelError(f"{path} is not a {called}; give one written by {self.layout.command}.")
            file_groups.require_schema(file, path, self.layout.schema, SCHEMA, f"{called}s")
            return self._read(file, kind == self.manifold, statistics)

    def load_coder(self, path: str | os.PathLike[str]) -> C:
        """Read a coder, also that of a manifold transform."""
        found = self.load(path, statistics=False)
        coder: Any = found.coder if isinstance(found, Manifold) else found
        return cast(C, coder)

    def _read(self, file: Any, embedded: bool, statistics: bool) -> C | Manifold:
        layout, about = {**HELD, **self.layout.groups}, dict(file.attrs)
        asked = json.loads(str(about["configuration"]))
        layouts.require(file, layout, atom=asked["units"], round=asked.get("rounds", 0))
        found = {
            name: file_groups.finite(file[group], name, np.float64)
            for group, variables in layout.items()
            for name in variables
        }
        cls: Any = self.cls
        coder = cls(
            shape=tuple(json.loads(about["shape"])),
            **{name: found[name] for name in HELD["whitening"]},
            **cls.read(found, about),
            provenance=json.loads(about["provenance"]),
        )
        if isinstance(coder, PatchEncoder) and "probe" in about:
            coder.require_probe(about["probe"], file.filename)
        return _read_manifold(file, coder, statistics) if embedded else coder


def _groups_of(model: Manifold) -> list[tuple[str, Group]]:
    """Return what the file of a transform holds beside its coder."""
    groups = [("embedding", file_groups.solution_group(model.embedding, "code"))] if model.embedding else []
    sums = model.statistics
    if sums is None:
        return groups
    groups.append(("statistics", valued.statistics_group(sums)))
    if "audit" in model.provenance:
        groups.append(("audit", file_groups.audit_group(model.provenance["audit"])))
    return groups


def _read_manifold(file: Any, coder: Coder, statistics: bool) -> Manifold:
    settings = ManifoldSettings.from_json(str(file.attrs["embedding"]))
    file_groups.require_arrays(file, {}, "code", valued.statistics_layout(), code=coder.size)
    embedding = file_groups.read_solution(file["embedding"])
    provenance = json.loads(file.attrs["origin"]) if "origin" in file.attrs else {}
    if "audit" in file:
        provenance["audit"] = file_groups.read_audit(file["audit"])
    model = Manifold(coder, settings, embedding, None, provenance)
    if not statistics or "statistics" not in file:
        return model
    sums = valued.read_statistics(file["statistics"], model.basis, provenance.get("audit", ()))
    return replace(model, statistics=sums)


def kind_in(path: str | os.PathLike[str]) -> str:
    """Return the kind that the file of a coder, or of a transform on one, says it is; nothing for another file."""
    try:
        with guarded.unlocked(path) as file:
            return str(file.attrs.get("kind", "")) if kinds.kind_in(file) in kinds.CODERS else ""
    except hdf5.DAMAGE:
        return ""
