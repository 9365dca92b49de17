"""Clusters by kind, each with the package that knows it: one function a kind, which starts it and stops it.

All start workers that run one task at a time. Whatever leaves this machine is encrypted: with the
certificates of `tls` or of Dask's configuration, in a batch queue else with certificates made for the run; or it
is refused. On this machine certificates made for the run keep other users out.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import inspect
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import dask
import distributed
import yaml
from distributed import Client, LocalCluster, Nanny, Worker
from distributed.comm import connect, get_address_host_port
from distributed.core import Status
from distributed.deploy.adaptive import Adaptive
from distributed.security import Security

from smtdist.engine import tls
from smtdist.engine.cluster_choice import ENCRYPTED, QUEUES, ClusterChoice, is_loopback, refuse_open
from smtdist.engine.dask_executor import DaskExecutor, Demand
from smtdist.engine.executor import Executor
from smtdist.engine.local_cluster import (
    CONFIGURATION,
    DESCRIPTORS,
    LOOPBACK,
    SILENT,
    executor_on,
    local_cluster,
    on_this_machine,
    require_descriptors,
    thread_environment,
)
from smtdist.errors import ConfigurationError, SmtdistError, counted, option
from smtdist.kernels.gpu import card

JOB_DESCRIPTORS = 4
"""Connections of the scheduler, which is in this process, with each worker of a batch queue, some to spare."""

Waiting = Callable[[], None]
"""Called each second while a first worker is awaited; it may raise to end the wait."""

ANSWER_SECONDS = 20.0  # that a busy scheduler has to answer: Dask's client would wait for ever
LISTENING_SECONDS = 5.0  # that a scheduler which is about to start has to listen at its address

NEEDED: Final = {
    "ssh": "a section ssh that has hosts: [head, node1, node2], first the scheduler's, then one for each worker",
    "kubernetes": "a DaskCluster resource (kind: DaskCluster), as the operator of dask-kubernetes has it",
}
"""What kinds of clusters cannot do without, in the file that configures them."""

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


def executor_of(
    choice: ClusterChoice, workers: int | None, waiting: Waiting | None = None
) -> AbstractContextManager[Executor]:
    """Return the executor of a cluster that is started now and stopped at the end, or of one that runs already."""
    choice.checked()
    if choice.max_workers is not None and choice.max_workers < max(1, workers or 1):
        raise ConfigurationError(
            f"{option('max_workers', choice.max_workers)} is less than the {counted(workers or 0, 'worker')} to start with."
        )
    if choice.is_address:
        return _client_executor(choice)
    start = {"local": _local, "ssh": _ssh, "kubernetes": _kubernetes, "cuda": _cuda}
    return start.get(choice.name, _queue)(choice, workers, waiting)


@contextmanager
def _client_executor(choice: ClusterChoice) -> Iterator[Executor]:
    with client_of(choice) as client, closing(DaskExecutor(client)) as executor:
        yield executor


@contextmanager
def client_of(choice: ClusterChoice, **options: Any) -> Iterator[Client]:
    """Connect to a scheduler that runs already, and say so where none answers; `options` are the Client's."""
    with dask.config.set(sections(choice)[1]):
        security = security_of(choice, ("client",))
        scheme, separator, rest = choice.name.partition("://")
        if not separator:
            scheme, rest = "tls" if security else "tcp", choice.name
        address = f"{scheme}://{rest}"
        encrypted = scheme in ENCRYPTED
        if encrypted and security is None:
            raise ConfigurationError(
                f"{address} asks for certificates; give {option('tls')} with the folder of `smtdist tls init` that it was "
                f"started with, or name your certificates in Dask's configuration (distributed.comm.tls)."
            )
        if not encrypted and choice.tls is not None:
            raise ConfigurationError(
                f"{address} is not encrypted, so {option('tls')} has no use; give tls://{rest}."
            )
        if not encrypted and scheme != "inproc" and not is_loopback(rest.rsplit(":", 1)[0]):
            remedy = f"start the scheduler with certificates of `smtdist tls init` and give tls:// with {option('tls')}"
            refuse_open(choice, f"{address} is reached without encryption", remedy)
        security = security if encrypted else None
        if scheme != "inproc":
            remedy = (
                f"check that it is running, and that {option('tls')} is the folder it was started with and is still valid"
                * encrypted
            )
            require_scheduler(address, security, remedy)
        with Client(address, security=security, timeout="20s", set_as_default=False, **options) as client:
            yield client


def _encrypt(choice: ClusterChoice, options: dict[str, Any]) -> None:
    """Let processes of this machine know one another: by the certificates there are, else by some for this run alone.

    Else any user of the machine could connect to them and run code as this one.
    """
    security = security_of(choice)
    beyond = "interface" in options or not is_loopback(str(options.get("host", LOOPBACK)))
    if security is None and beyond:
        remedy = f"give {option('tls')} with a folder of `smtdist tls init`"
        refuse_open(choice, "A cluster beyond the loopback interface needs certificates", remedy)
    if security is None and not choice.insecure and not {"security", "protocol"} & options.keys():
        security = tls.temporary()
    if security is not None:
        options.update(security=security, protocol="tls://")


@contextmanager
def _local(choice: ClusterChoice, workers: int | None, waiting: Waiting | None) -> Iterator[Executor]:
    """Processes of this machine, on the loopback interface unless the section `local` says otherwise."""
    options, other = sections(choice)
    with dask.config.set(other):
        _encrypt(choice, options)
        first = max(1, workers or 1)
        # what LocalCluster does not know it hands to its workers, which fail later, each on its own
        known = {
            name for one in (LocalCluster, Nanny, Worker) for name in inspect.signature(one).parameters
        }
        for name in options.keys() - known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "give keywords of Dask's LocalCluster."
            raise ConfigurationError(f"The section local of {choice.config} has the key {name!r}; {hint}")
        with ExitStack() as stack:
            ours = local_cluster(first, limit_bytes=choice.memory, most=choice.max_workers, **options)
            cluster = started("local", stack.enter_context, ours)
            most = choice.max_workers
            yield stack.enter_context(
                executor_on(cluster) if most is None else _following(cluster, first, most, waiting)
            )


@contextmanager
def _queue(choice: ClusterChoice, workers: int | None, waiting: Waiting | None) -> Iterator[Executor]:
    """Jobs of a batch queue; lost ones are submitted again."""
    if not workers:
        raise ConfigurationError(
            f"A {QUEUES[choice.name].name} cluster needs a number of workers; give {option('n_workers')}."
        )
    with queue_cluster(choice) as (cluster, processes):
        jobs = -(-workers // processes)
        most = -(-(choice.max_workers or workers) // processes)
        require_descriptors(
            DESCRIPTORS + JOB_DESCRIPTORS * most * processes, counted(most * processes, "worker")
        )
        submitted = Jobs(cluster, choice.name)

        def waiting_for_jobs() -> None:
            submitted.require_some()
            if waiting is not None:
                waiting()

        with _following(cluster, jobs * processes, most * processes, waiting_for_jobs) as executor:
            yield executor


@contextmanager
def _ssh(choice: ClusterChoice, workers: int | None, waiting: Waiting | None) -> Iterator[Executor]:
    """A scheduler on the first host and a worker on each other one, started through SSH."""
    package("asyncssh", "asyncssh", "ssh")
    options, other = sections(choice)
    hosts = [str(host) for host in options.pop("hosts", [])]
    if len(hosts) < 2:
        raise ConfigurationError(
            "The section ssh needs `hosts`: first the scheduler's, then one for each worker; a host may stand twice."
        )
    if workers and workers > len(hosts) - 1:
        raise ConfigurationError(
            f"{option('n_workers')} asks for {workers}, but the section ssh has {counted(len(hosts) - 1, 'host')} for workers; "
            f"add hosts (a host may stand more than once)."
        )
    hosts = hosts[: 1 + (workers or len(hosts))]
    away = not all(is_loopback(host) for host in hosts)
    connect = options.pop("connect_options", {})
    for one in connect if isinstance(connect, list) else [connect]:
        one.setdefault("connect_timeout", "30s")
        if away and one.get("known_hosts", ()) is None:
            refuse_open(choice, "`known_hosts: null` takes any machine for the right one", "leave it out")
    ours = {"dashboard_address": f"{LOOPBACK}:0"}
    scheduler = {**ours, **options.pop("scheduler_options", {})}
    worker = {**ours, **options.pop("worker_options", {})}
    with dask.config.set({**CONFIGURATION, **other}):
        security = security_of(choice)
        inherited: dict[str, Any] = {}
        if security is None and away:
            refuse_open(
                choice,
                "The processes on the hosts would talk without encryption",
                f"copy a folder of `smtdist tls init` to the same path on all hosts and give it with {option('tls')}",
            )
        if security is not None:
            inherited = tls.configuration_of(security)
            if any("\n" in str(value) for value in inherited.values()):
                raise ConfigurationError(
                    "Dask's configuration contains a TLS key as text, which every user of the hosts could read in the list "
                    "of processes; put it into a file and name that."
                )
            scheduler["protocol"] = worker["protocol"] = "tls://"
        with dask.config.set(inherited):
            cluster = started(
                "SSH",
                distributed.SSHCluster,
                hosts,
                connect_options=connect,
                scheduler_options=scheduler,
                worker_options=worker,
                security=security,
                silence_logs=SILENT,
                **options,
            )
            with cluster, executor_on(cluster, waiting=waiting) as executor:
                yield executor


@contextmanager
def _kubernetes(choice: ClusterChoice, workers: int | None, waiting: Waiting | None) -> Iterator[Executor]:
    """A DaskCluster resource, handed as it is to the operator, and deleted at the end."""
    operator = package("dask_kubernetes.operator", "dask-kubernetes", "kubernetes")
    resource, _ = sections(choice)
    if resource.get("kind") != "DaskCluster":
        raise ConfigurationError(
            f"{option('cluster', 'kubernetes')} takes {NEEDED['kubernetes']}, and {choice.config} has "
            f"kind {resource.get('kind')}."
        )
    instead = f"create it with kubectl, forward its port and use {option('cluster', 'tls://localhost:8786')} with {option('tls')}"
    container = resource["spec"]["scheduler"]["spec"]["containers"][0]
    words = [str(word).lstrip("-") for word in (*container.get("command", []), *container.get("args", []))]
    if choice.tls is not None or any(word.startswith(("tls", "protocol=tls")) for word in words):
        raise ConfigurationError(f"dask-kubernetes itself connects without encryption only; {instead}.")
    refuse_open(choice, "The pods of this resource would talk without encryption", instead)
    if workers:
        resource["spec"]["worker"]["replicas"] = workers
    first = int(resource["spec"]["worker"].get("replicas", 1))
    cluster = started(
        "Kubernetes",
        operator.KubeCluster,
        custom_cluster_spec=resource,
        namespace=resource.get("metadata", {}).get("namespace"),
        shutdown_on_close=True,
        quiet=True,
    )
    demand = None if choice.max_workers is None else Demand(first, choice.max_workers)
    with (
        cluster,
        executor_on(cluster, demand, waiting or (lambda: None)) as executor,
        _scaled(cluster, executor, first) if demand else nullcontext(),
    ):
        yield executor


@contextmanager
def _cuda(choice: ClusterChoice, workers: int | None, waiting: Waiting | None) -> Iterator[Executor]:
    """A worker for each GPU of this machine, on the loopback interface."""
    dask_cuda = package("dask_cuda", "dask-cuda", "cuda", "cuda-cluster")
    options, other = sections(choice, required=False)
    if workers:
        options["n_workers"] = workers
    with dask.config.set({**CONFIGURATION, **other}):
        _encrypt(choice, options)
        ours = {
            "host": LOOPBACK,
            "dashboard_address": f"{LOOPBACK}:0",
            "silence_logs": SILENT,
        }
        cluster = started("CUDA", on_this_machine, dask_cuda.LocalCUDACluster, 1, **{**ours, **options})
        with cluster, executor_on(cluster, waiting=waiting) as executor:
            found = executor.client.run(_gpu_missing)
            if why := next(filter(None, found.values()), ""):
                without = sum(map(bool, found.values()))
                raise SmtdistError(
                    f"{without} of {counted(len(found), 'worker')} of the CUDA cluster can use no GPU: {why}"
                )
            yield executor


def _gpu_missing() -> str:
    """Return why this worker has no GPU to use, "" where it has one; it is the worker's from now on."""
    return "" if card.taken() else card.missing()


@contextmanager
def _following(cluster: Any, minimum: int, maximum: int, waiting: Waiting | None) -> Iterator[DaskExecutor]:
    """Keep the number of workers between two bounds as the work asks, and replace those that are lost."""
    executors: list[DaskExecutor] = []

    class Wanted(Adaptive):  # type: ignore[misc]
        async def target(self) -> int:
            present = len(self.plan)
            return executors[0].wanted(present) if executors else present

    # with equal bounds it keeps the number: a job that was lost is submitted again, which `scale` does not do
    cluster.adapt(Adaptive=Wanted, minimum=minimum, maximum=maximum, interval="1s", wait_count=1)
    with executor_on(cluster, Demand(minimum, maximum), waiting or (lambda: None)) as executor:
        executors.append(executor)
        yield executor


@contextmanager
def _scaled(cluster: Any, executor: DaskExecutor, present: int, seconds: float = 5.0) -> Iterator[None]:
    """Ask a cluster that Dask's own Adaptive cannot steer for as many workers as the work wants, now and then."""
    ended = threading.Event()

    def follow(present: int) -> None:
        while not ended.wait(seconds):
            wanted = executor.wanted(present)
            if wanted != present:
                cluster.scale(wanted)
                present = wanted

    thread = threading.Thread(target=follow, args=(present,), name="smtdist-scale", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def require_scheduler(address: str, security: Security | None = None, remedy: str = "") -> None:
    """Raise a SmtdistError where what answers at an address is no scheduler, or nothing answers."""
    try:
        # in a notebook this thread has a loop that runs already
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(asyncio.run, _answer(address, security or Security())).result()
        if not (isinstance(answer, dict) and answer.get("type") == "Scheduler"):
            raise ValueError("what answers there is none")
    except Exception as error:  # what speaks another language leads to errors of any kind
        said = (
            " ".join(str(error).split()).rstrip(".")
            or f"nothing that it says within {ANSWER_SECONDS:.0f} s"
        )
        raise SmtdistError(
            f"No Dask scheduler answers at {address} ({said}); "
            f"{remedy or 'check that it is running, and give the address that `dask scheduler` prints'}."
        ) from error


async def _answer(address: str, security: Security) -> Any:
    how: dict[str, Any] = security.get_connection_args("client")
    async with asyncio.timeout(ANSWER_SECONDS):
        try:
            comm = await connect(address, timeout=LISTENING_SECONDS, **how)
        except OSError as error:
            try:  # what listens may be too busy to greet
                place = asyncio.open_connection(*get_address_host_port(address))
                _, writer = await asyncio.wait_for(place, LISTENING_SECONDS)
            except (OSError, ValueError):
                raise error from None
            writer.close()
            comm = await connect(address, timeout=ANSWER_SECONDS, **how)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await comm.read()
        finally:
            comm.abort()


def started(kind: str, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Start a cluster; what its package raises becomes a sentence."""
    try:
        return make(*arguments, **options)
    except SmtdistError:
        raise
    except TypeError as error:  # a keyword that it does not know
        raise ConfigurationError(
            f"The {kind} cluster cannot be started with this configuration ({error})."
        ) from error
    except Exception as error:
        cause = error.__cause__ or error
        said = " ".join(str(cause).split()) or type(cause).__name__
        raise SmtdistError(f"The {kind} cluster did not start: {said}") from error


def package(module: str, name: str, kind: str, extra: str = "") -> Any:
    """Import what a kind of cluster is built on, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SmtdistError(
            f"{option('cluster', kind)} needs the package {name} ({error}); pip install 'smtdist[{extra or kind}]'."
        ) from error


def sections(choice: ClusterChoice, required: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the kind's own section of the configuration file, and the rest as Dask's configuration."""
    if choice.config is None:
        if required and choice.name in NEEDED:
            raise ConfigurationError(
                f"{option('cluster', choice.name)} needs {option('config')}, a YAML file with {NEEDED[choice.name]}."
            )
        return {}, {}
    try:
        content = yaml.safe_load(choice.config.read_text()) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{choice.config} is not a readable YAML file ({error}).") from error
    if not isinstance(content, dict):
        raise ConfigurationError(
            f"{choice.config} is not a mapping of keys to values; give Dask's configuration."
        )
    if choice.name == "kubernetes":
        return content, {}
    own = content.pop(choice.name, None) or {}
    if not isinstance(own, dict):
        raise ConfigurationError(f"The section {choice.name} of {choice.config} is not a mapping.")
    return own, dict(_dotted(content))


def _dotted(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value), which add to Dask's configuration where a whole section would replace one."""
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_environment(configuration: dict[str, Any]) -> dict[str, str]:
    """Return variables that bring Dask's configuration to a process elsewhere; what holds lines (a key) stays here."""
    return {
        f"DASK_{key.replace('.', '__').replace('-', '_').upper()}": repr(value)
        for key, value in configuration.items()
        if key.startswith("distributed.") and "\n" not in str(value)
    }


def security_of(choice: ClusterChoice, roles: Sequence[str] = tls.ROLES) -> Security | None:
    """Return the certificates of `choice.tls`, else those of Dask's configuration, else None."""
    if choice.tls is not None:
        return tls.security_from(choice.tls, roles)
    found = Security()
    named = [getattr(found, f"tls_{role}_cert") for role in roles]
    return found if found.tls_ca_file and all(named) else None


@contextmanager
def certificates_of(choice: ClusterChoice, shared: Path) -> Iterator[Security | None]:
    """Yield the certificates there are, else some for this run alone, in a private folder that is removed at its end."""
    found = security_of(choice)
    if found is not None or choice.insecure:
        yield found
        return
    folder = shared.expanduser().absolute() / f".smtdist-tls-{socket.gethostname()}-{os.getpid()}"
    try:
        yield tls.security_from(tls.create(folder, days=30), tls.ROLES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
                    # dask-jobqueue submits in the background, where nobody hears the answer
                    script = cluster.job_script()
                    asked = subprocess.run(queue.asking, input=script, capture_output=True, text=True)
                    if asked.returncode:
                        said = " ".join(asked.stderr.split())
                        raise SmtdistError(
                            f"{queue.name} refused a worker's job ({said}); change the section jobqueue.{choice.name} of "
                            f"{option('config')}."
                        )
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
