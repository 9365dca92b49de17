"""CHECKPOINT/run.json: what a fit was asked, so that `resume` needs nothing but the folder."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from smtdist.configuration import Configuration
from smtdist.data.source import Source
from smtdist.engine.checkpoint import sentence_for
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.errors import CheckpointError, ConfigurationError

SCHEMA = 1
NAME = "run.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of fit, with absolute paths; `described` and `key` say which data it was started on."""

    data: str | list[str]  # paths or addresses
    dataset: str
    settings: Configuration
    out: Path
    from_model: Path | None
    atoms: Path | None
    overwrite: bool
    workers: int | None
    cluster: ClusterChoice | None
    described: dict[str, Any] | None = None
    key: str = ""

    def moved(self, workers: int | None, cluster: ClusterChoice | None, overwrite: bool) -> Self:
        """Return the run on other machines; what is not given stays."""
        if workers is None and cluster is None:
            return replace(self, overwrite=self.overwrite or overwrite)
        return replace(self, workers=workers, cluster=cluster, overwrite=self.overwrite or overwrite)

    def require_same_data(self, source: Source, key: str, checkpoint: Path) -> None:
        """Refuse to go on with other data, or other atoms, than the run was started on."""
        if described(source) != self.described:
            then, now = _brief(self.described), _brief(described(source))
            raise CheckpointError(
                f"{source.name} is no longer what {checkpoint} was started on (then {then}, now {now}); "
                f"put the data back, or start a new fit with another checkpoint folder."
            )
        if key != self.key:
            raise CheckpointError(
                f"The model or the atoms that {checkpoint} was started with have changed; put them back, or "
                f"start a new fit with another checkpoint folder."
            )


def described(source: Source) -> dict[str, Any]:
    """Return what a source looks like from outside, with the size of its file where it has one."""
    return {**source.describe(), "file_bytes": source.file_bytes}


def write_run(checkpoint: Path, run: Run, source: Source, key: str) -> None:
    """Write run.json, whole or not at all; a folder that holds another run is refused."""
    path = checkpoint / NAME
    if path.exists() and read_run(checkpoint).key != key:
        raise CheckpointError(
            f"{checkpoint} belongs to another run (other data, settings or seed); use another folder, or "
            f"delete this one."
        )
    content = {
        "schema": SCHEMA,
        "data": run.data,
        "dataset": run.dataset,
        "settings": run.settings.to_dict(),
        "out": str(run.out),
        "from_model": run.from_model and str(run.from_model),
        "atoms": run.atoms and str(run.atoms),
        "overwrite": run.overwrite,
        "workers": run.workers,
        "cluster": run.cluster and run.cluster.name,
        "cluster_options": {} if run.cluster is None else run.cluster.to_dict(),
        "described": described(source),
        "key": key,
    }
    with sentence_for(checkpoint):
        checkpoint.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{NAME}.", suffix=".tmp", dir=checkpoint)
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(content, file, indent=1)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def read_run(checkpoint: Path) -> Run:
    """Read what a checkpoint folder was started with."""
    path = checkpoint / NAME
    if not path.is_file():
        raise CheckpointError(
            f"{checkpoint} is no checkpoint of a fit: it has no {NAME}; give the folder of fit --checkpoint."
        )
    try:
        content = json.loads(path.read_text())
        if int(content["schema"]) > SCHEMA:
            raise CheckpointError(f"{path} was written by a newer smtdist; resume with that version.")
        optional: dict[str, Any] = {
            name: content[name] and Path(content[name]) for name in ("from_model", "atoms")
        }
        plain = {name: content[name] for name in ("dataset", "overwrite", "workers", "described", "key")}
        if content["cluster"] is not None:
            cluster = ClusterChoice.from_dict(content["cluster"], content.get("cluster_options", {}))
        else:
            cluster = None
        settings = Configuration.from_dict(content["settings"])
        return Run(
            data=content["data"],
            out=Path(content["out"]),
            settings=settings,
            cluster=cluster,
            **optional,
            **plain,
        )
    except (OSError, ValueError, KeyError, TypeError, ConfigurationError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); start the fit again with another checkpoint folder."
        ) from error


def _brief(about: dict[str, Any] | None) -> str:
    if about is None:
        return "unknown"
    shape = tuple(about["shape"])
    size = "" if about["file_bytes"] is None else f", {about['file_bytes']:,} bytes"
    return f"{about['dtype']} {shape} in chunks of {about['chunk_samples']}{size}"
