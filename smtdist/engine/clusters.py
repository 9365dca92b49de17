"""Clusters by kind, each with the package that knows it: one function a kind, which starts it and stops it.

All start workers that run one task at a time. Whatever leaves this machine is encrypted: with the
certificates of `tls` or of Dask's configuration, in a batch queue else with certificates made for the run; or it
is refused. On this machine certificates made for the run keep other users out.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any

import dask
import distributed
from distributed import Client, LocalCluster, Nanny, Worker
from distributed.comm import connect, get_address_host_port
from distributed.security import Security

from smtdist.engine import tls
from smtdist.engine.adaptive import Demand, policy
from smtdist.engine.cluster_choice import (
    ENCRYPTED,
    QUEUES,
    ClusterChoice,
    is_loopback,
    refuse_open,
)
from smtdist.engine.cluster_setup import (
    package,
    sections,
    security_of,
    started,
)
from smtdist.engine.dask_executor import DaskExecutor
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
)
from smtdist.engine.queues import Jobs, queue_cluster
from smtdist.errors import ConfigurationError, SmtdistError, counted, option

JOB_DESCRIPTORS = 4
"""Connections of the scheduler, which is in this process, with each worker of a batch queue, some to spare."""

Waiting = Callable[[], None]
"""Called each second while a first worker is awaited; it may raise to end the wait."""

ANSWER_SECONDS = 20.0  # that a busy scheduler has to answer: Dask's client would wait for ever
LISTENING_SECONDS = 5.0  # that a scheduler which is about to start has to listen at its address


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
        return _address(choice)
    start = {"local": _local, "ssh": _ssh, "kubernetes": _kubernetes, "cuda": _cuda}
    return start.get(choice.name, _queue)(choice, workers, waiting)


@contextmanager
def _address(choice: ClusterChoice) -> Iterator[Executor]:
    """Connect to a scheduler that runs already."""
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


def _require_known(options: dict[str, Any], choice: ClusterChoice) -> None:
    """Refuse keywords of the section `local` that neither LocalCluster nor its workers have."""
    known = {name for one in (LocalCluster, Nanny, Worker) for name in inspect.signature(one).parameters}
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "give keywords of Dask's LocalCluster."
            raise ConfigurationError(f"The section local of {choice.config} has the key {name!r}; {hint}")


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
        _require_known(options, choice)
        with ExitStack() as stack:
            cluster = started(
                "local",
                stack.enter_context,
                local_cluster(first, limit_bytes=choice.memory, most=choice.max_workers, **options),
            )
            if choice.max_workers is None:
                with executor_on(cluster) as executor:
                    yield executor
            else:
                with _following(cluster, first, choice.max_workers, waiting) as executor:
                    yield executor


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
            f"{option('cluster', 'kubernetes')} needs a DaskCluster resource; give one such as deploy/kubernetes/cluster.yaml "
            f"with {option('config')}."
        )
    instead = f"create it with kubectl, forward its port and use {option('cluster', 'tls://localhost:8786')} with {option('tls')}"
    if choice.tls is not None or _mentions_tls(resource):
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
    with cluster, executor_on(cluster, demand, waiting or (lambda: None)) as executor:
        if demand is None:
            yield executor
        else:
            with _scaled(cluster, executor, first):
                yield executor


def _mentions_tls(resource: dict[str, Any]) -> bool:
    container = resource["spec"]["scheduler"]["spec"]["containers"][0]
    words = [*container.get("command", []), *container.get("args", [])]
    return any(str(word).lstrip("-").startswith(("tls", "protocol=tls")) for word in words)


@contextmanager
def _cuda(choice: ClusterChoice, workers: int | None, waiting: Waiting | None) -> Iterator[Executor]:
    """A worker for each GPU of this machine, on the loopback interface."""
    dask_cuda = package("dask_cuda", "dask-cuda", "cuda")
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
            yield executor


@contextmanager
def _following(cluster: Any, minimum: int, maximum: int, waiting: Waiting | None) -> Iterator[DaskExecutor]:
    """Keep the number of workers between two bounds as the work asks, and replace those that are lost."""
    executors: list[DaskExecutor] = []
    cluster.adapt(
        Adaptive=policy(lambda present: executors[0].wanted(present) if executors else present),
        minimum=minimum,
        maximum=maximum,
        interval="1s",
        wait_count=1,
    )
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
            thread.submit(asyncio.run, _asked(address, security or Security())).result()
    except Exception as error:  # what speaks another language leads to errors of any kind
        said = (
            " ".join(str(error).split()).rstrip(".")
            or f"nothing that it says within {ANSWER_SECONDS:.0f} s"
        )
        raise SmtdistError(
            f"No Dask scheduler answers at {address} ({said}); "
            f"{remedy or 'check that it is running, and give the address that `dask scheduler` prints'}."
        ) from error


async def _asked(address: str, security: Security) -> None:
    answer = await asyncio.wait_for(_answer(address, security), ANSWER_SECONDS)
    if not (isinstance(answer, dict) and answer.get("type") == "Scheduler"):
        raise ValueError("what answers there is none")


async def _answer(address: str, security: Security) -> Any:
    how: dict[str, Any] = security.get_connection_args("client")
    try:
        comm = await connect(address, timeout=LISTENING_SECONDS, **how)
    except OSError:
        if not await _listens(address):
            raise
        comm = await connect(address, timeout=ANSWER_SECONDS, **how)
    try:
        await comm.write({"op": "identity", "reply": True})
        return await comm.read()
    finally:
        comm.abort()


async def _listens(address: str) -> bool:
    """Tell whether anything listens at an address."""
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(*get_address_host_port(address)), LISTENING_SECONDS
        )
    except (OSError, ValueError):
        return False
    writer.close()
    return True
