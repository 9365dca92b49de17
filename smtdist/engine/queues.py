"""Workers as jobs of a batch queue, by dask-jobqueue: SLURM, PBS, Grid Engine, LSF, OAR and Moab."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dask
from distributed.core import Status

from smtdist.engine.cluster_choice import QUEUES, ClusterChoice, Queue
from smtdist.engine.cluster_setup import as_environment, certificates_of, package, sections, started
from smtdist.engine.local_cluster import CONFIGURATION, LOOPBACK, SILENT, thread_environment
from smtdist.errors import ConfigurationError, SmtdistError, option

LOST_WORKER: Final = {"distributed.deploy.lost-worker-timeout": "5s"}
"""How long after a worker has gone its job is given up and replaced; Dask's 15 s are for networks that blink."""

LOOK_SECONDS: Final = 10.0
"""How often a queue is asked for jobs while no worker has joined; what two looks in a row find gone is gone."""
UNKNOWN: Final = re.compile(
    r"invalid job|unknown job|job has finished|jobs? do(es)? not exist|job <\d+> is not found",
    re.IGNORECASE,
)
"""With what queues refuse to show a job that has ended."""
ENDED: Final = re.compile(
    r"^(DONE|EXIT)$|^state: +(completed|removed|vacated)|^ *(job_)?state = (C|F|terminated|error)$",
    re.IGNORECASE | re.MULTILINE,
)
"""How queues show a job that has ended; SLURM then shows nothing."""


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
                f"{option('config')}."
            )
        for key in ("local-directory", "log-directory", "shared-temp-directory"):
            if (
                len(str(site(key, "")).split()) > 1
            ):  # dask-jobqueue writes them into the job's script as they are
                raise ConfigurationError(
                    f"The {key} of jobqueue.{choice.name} is {str(site(key))!r}, and a job takes none with spaces; give "
                    f"another folder in {option('config')}."
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
                job_cls=_remembering(getattr(jobqueue, queue.cluster).job_cls),
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


def _remembering(job: type[Any]) -> type[Any]:
    """Return a class of jobs that keep what the queue said where it did not take one: Dask does not tell."""

    class Remembering(job):  # type: ignore[misc]  # a class that is known when it is needed
        refusal = ""

        async def start(self) -> None:
            try:
                await super().start()
            except Exception as error:
                self.refusal = " ".join(str(error).rpartition("stderr:")[2].split()) or type(error).__name__
                raise

        async def close(self) -> None:
            await super().close()
            self.status = Status.closed  # the cluster looks, where anything still holds the job

    return Remembering


class Jobs:
    """The jobs of a cluster, of which one at least must be left while a worker is awaited."""

    def __init__(self, cluster: Any, kind: str) -> None:
        self._cluster, self._kind, self._queue = cluster, kind, QUEUES[kind]
        self._looked_at, self._gone = time.monotonic(), list[str]()

    def require_some(self) -> None:
        """Raise a SmtdistError where the queue took none of the jobs, or all have ended before a worker of theirs joined."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        jobs = list(self._cluster.workers.values())
        taken = [job.job_id for job in jobs if not job.refusal]
        if jobs and not taken:
            raise SmtdistError(
                f"{self._queue.name} refused the jobs of workers ({jobs[0].refusal}); change the section jobqueue.{self._kind} "
                f"of {option('config')}."
            )
        before, self._gone = self._gone, [] if any(map(self._lives, taken)) else taken
        if self._gone and self._gone == before:
            logs = jobs[0].log_directory or "the folder that this was started in"
            raise SmtdistError(
                f"All jobs of workers have ended and no worker has joined ({self._queue.name} job {', '.join(taken[:3])}); read "
                f"what they wrote to {logs}, and check that smtdist runs there and reaches "
                f"{self._cluster.scheduler_address}."
            )

    def _lives(self, job: str | None) -> bool:
        """Tell whether a job waits or runs; one that the queue does not speak of clearly does."""
        if job is None:
            return True  # it is being submitted
        try:
            shown = subprocess.run(
                [*self._queue.showing.split(), job], capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            return True
        if shown.returncode:
            return not UNKNOWN.search(shown.stdout + shown.stderr)
        return bool(shown.stdout.strip()) and not ENDED.search(shown.stdout)


def _require_acceptable(queue: Queue, kind: str, script: str) -> None:
    """Ask a queue whether it would take a job: dask-jobqueue submits in the background, where nobody hears the answer."""
    asked = subprocess.run(queue.asking, input=script, capture_output=True, text=True)
    if asked.returncode:
        said = " ".join(asked.stderr.split())
        raise SmtdistError(
            f"{queue.name} refused a worker's job ({said}); change the section jobqueue.{kind} of {option('config')}."
        )
