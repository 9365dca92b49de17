"""CHECKPOINT/run.json: what a fit was asked, so that `resume` needs nothing but the folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from smtdist.configuration import Configuration
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.manifest import write_json
from smtdist.errors import CheckpointError, ConfigurationError

SCHEMA = 2
NAME = "run.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of fit, with absolute paths; `key` is that of its sums."""

    data: str | list[str]  # paths or addresses
    dataset: str
    settings: Configuration
    out: Path
    from_model: Path | None
    atoms: Path | None
    overwrite: bool
    workers: int | None
    cluster: ClusterChoice | None
    on_bad_chunk: str = "raise"
    solve_on: str = "driver"
    key: str = ""

    def moved(
        self,
        workers: int | None,
        cluster: ClusterChoice | None,
        overwrite: bool,
        on_bad_chunk: str | None = None,
        solve_on: str | None = None,
    ) -> Self:
        """Return the run on other machines; what is not given stays."""
        same = replace(
            self,
            overwrite=self.overwrite or overwrite,
            on_bad_chunk=on_bad_chunk or self.on_bad_chunk,
            solve_on=solve_on or self.solve_on,
        )
        if workers is None and cluster is None:
            return same
        return replace(same, workers=workers, cluster=cluster)


def write_run(checkpoint: Path, run: Run, key: str) -> None:
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
        "on_bad_chunk": run.on_bad_chunk,
        "solve_on": run.solve_on,
        "key": key,
    }
    write_json(path, content)


def read_run(checkpoint: Path) -> Run:
    """Read what a checkpoint folder was started with."""
    path = checkpoint / NAME
    if (checkpoint / "kernel.json").is_file():
        raise CheckpointError(
            f"{checkpoint} is the checkpoint of a kernel model; go on with smtdist kernel resume."
        )
    if not path.is_file():
        raise CheckpointError(
            f"{checkpoint} is no checkpoint of a fit: it has no {NAME}; give the folder of fit --checkpoint."
        )
    try:
        content = json.loads(path.read_text())
        if int(content["schema"]) > SCHEMA:
            raise CheckpointError(f"{path} was written by a newer smtdist; resume with that version.")
        if int(content["schema"]) < SCHEMA:
            raise CheckpointError(
                f"{path} was written by an earlier smtdist (schema {content['schema']}, this version has {SCHEMA}); resume "
                f"with that version, or start the fit again with another checkpoint folder."
            )
        optional: dict[str, Any] = {
            name: content[name] and Path(content[name]) for name in ("from_model", "atoms")
        }
        plain = {name: content[name] for name in ("dataset", "overwrite", "workers", "on_bad_chunk", "key")}
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
            solve_on=content.get("solve_on", "driver"),
            **optional,
            **plain,
        )
    except (OSError, ValueError, KeyError, TypeError, ConfigurationError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); start the fit again with another checkpoint folder."
        ) from error
