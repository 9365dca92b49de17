"""CHECKPOINT/kernel.json: what a kernel fit was asked, so that `kernel resume` needs nothing but the folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from smtdist.data.source import Source
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.manifest import write_json
from smtdist.errors import CheckpointError, ConfigurationError
from smtdist.models.kernel.estimators import samples_of
from smtdist.models.kernel.settings import KernelSettings

SCHEMA: Final = 1
NAME: Final = "kernel.json"


@dataclass(frozen=True, kw_only=True)
class KernelRun:
    """One call of `kernel fit`, with absolute paths."""

    data: str  # a path or an address
    dataset: str
    settings: KernelSettings
    out: Path
    overwrite: bool
    workers: int | None
    cluster: ClusterChoice | None

    def source(self) -> Source:
        """Open what is fitted on."""
        return samples_of((self.data, self.dataset))

    def moved(self, workers: int | None, cluster: ClusterChoice | None, overwrite: bool) -> Self:
        """Return the run on other machines; what is not given stays."""
        same = replace(self, overwrite=self.overwrite or overwrite)
        return (
            same if workers is None and cluster is None else replace(same, workers=workers, cluster=cluster)
        )


def write_kernel_run(checkpoint: Path, run: KernelRun) -> None:
    """Write kernel.json, whole or not at all."""
    content = {
        "schema": SCHEMA,
        "data": run.data,
        "dataset": run.dataset,
        "settings": json.loads(run.settings.to_json()),
        "out": str(run.out),
        "overwrite": run.overwrite,
        "workers": run.workers,
        "cluster": run.cluster and run.cluster.name,
        "cluster_options": {} if run.cluster is None else run.cluster.to_dict(),
    }
    write_json(checkpoint / NAME, content)


def read_kernel_run(checkpoint: Path) -> KernelRun:
    """Read what a checkpoint folder was started with; CheckpointError for what is none."""
    path = checkpoint / NAME
    if not path.is_file():
        raise CheckpointError(
            f"{checkpoint} is no checkpoint of a kernel model: it has no {NAME}; give the folder of kernel fit --checkpoint."
        )
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        if int(content["schema"]) > SCHEMA:
            raise CheckpointError(f"{path} was written by a newer smtdist; resume with that version.")
        cluster = content["cluster"] and ClusterChoice.from_dict(
            content["cluster"], content["cluster_options"]
        )
        return KernelRun(
            settings=KernelSettings.from_json(json.dumps(content["settings"])),
            out=Path(content["out"]),
            cluster=cluster,
            **{name: content[name] for name in ("data", "dataset", "overwrite", "workers")},
        )
    except (OSError, ValueError, KeyError, TypeError, ConfigurationError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); start the fit again with another checkpoint folder."
        ) from error
