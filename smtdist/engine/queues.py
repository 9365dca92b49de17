"""Workers as jobs of a batch queue, by dask-jobqueue: SLURM, PBS, Grid Engine, LSF, OAR and Moab."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dask

from smtdist.engine.cluster_choice import QUEUES, ClusterChoice, Queue
from smtdist.engine.cluster_setup import as_environment, certificates_of, package, sections, started
from smtdist.engine.local_cluster import CONFIGURATION, LOOPBACK, SILENT, thread_environment
from smtdist.errors import ConfigurationError, SmtdistError

LOST_WORKER: Final = {"distributed.deploy.lost-worker-timeout": "5s"}
"""How long after a worker has gone its job is given up and replaced; Dask's 15 s are for networks that blink."""


@contextmanager
def queue_cluster(choice: ClusterChoice) -> Iterator[tuple[Any, int]]:
    """Yield a cluster without workers yet, whose jobs hold a worker each unless `processes` says more, and that number."""
    queue = QUEUES[choice.name]
    jobqueue = package("dask_jobqueue", "dask-jobqueue", "slurm")
    if shutil.which(queue.submit) is None:
        raise SmtdistError(
            f"There is no {queue.submit} here; start this on a machine that submits {queue.name} jobs."
        )
    other = sections(choice)[1]
    with dask.config.set({**CONFIGURATION, **LOST_WORKER, **other}):

        def site(key: str, default: Any = None) -> Any:
            return dask.config.get(f"jobqueue.{choice.name}.{key}", None) or default

        processes = int(site("processes", 1))
        cores = int(site("job-cpu", 0)) or int(site("cores", 0))
        if not cores or not site("memory"):
            raise ConfigurationError(
                f"A {queue.name} job needs a size; give cores and memory in the section jobqueue.{choice.name} of "
                f"--cluster-config."
            )
        for key in ("local-directory", "log-directory", "shared-temp-directory"):
            if (
                len(str(site(key, "")).split()) > 1
            ):  # dask-jobqueue writes them into the job's script as they are
                raise ConfigurationError(
                    f"The {key} of jobqueue.{choice.name} is {str(site(key))!r}, and a job takes none with spaces; give "
                    f"another folder in --cluster-config."
                )
        extra = [str(word) for word in site("worker-extra-args", [])]
        if "--dashboard-address" not in extra:
            extra += ["--dashboard-address", f"{LOOPBACK}:0"]
        environment = {
            **thread_environment(max(1, cores // processes)),
            **as_environment({**CONFIGURATION, **other}),
        }
        environment["DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON"] = repr(
            thread_environment(cores // processes)
        )
        exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        with certificates_of(choice, Path(site("shared-temp-directory", "."))) as security:
            cluster = started(
                queue.name,
                getattr(jobqueue, queue.cluster),
                cores=cores,
                processes=processes,
                security=security,
                scheduler_options={"dashboard_address": f"{LOOPBACK}:0", **site("scheduler-options", {})},
                # a worker runs one task at a time, on all of its share of the cores; the last --nthreads counts
                worker_extra_args=[*extra, "--nthreads", "1"],
                job_script_prologue=[*site("job-script-prologue", []), *exports],
                silence_logs=SILENT,
            )
            with cluster:
                if queue.asking:
                    _require_acceptable(queue, choice.name, cluster.job_script())
                yield cluster, processes


def _require_acceptable(queue: Queue, kind: str, script: str) -> None:
    """Ask a queue whether it would take a job: dask-jobqueue submits in the background, where nobody hears the answer."""
    asked = subprocess.run(queue.asking, input=script, capture_output=True, text=True)
    if asked.returncode:
        said = " ".join(asked.stderr.split())
        raise SmtdistError(
            f"{queue.name} refused a worker's job ({said}); change the section jobqueue.{kind} of --cluster-config."
        )
