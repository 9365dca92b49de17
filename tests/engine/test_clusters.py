"""Clusters by kind: what is refused and why, workers that come and go in the middle of a pass, what a kind is given."""

import asyncio
import gc
import os
import runpy
import sys
import threading
import types
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
from calling import same_fits
from deploying import CONFIGURATION, until
from distributed import Client, LocalCluster
from drawing import small_images
from fake_cupy import install

from smtdist.configuration import Configuration
from smtdist.data.array import as_source, in_memory, piece_of
from smtdist.engine import dask_executor, session, tls
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.clusters import executor_of
from smtdist.engine.dask_executor import Demand
from smtdist.engine.events import EventStream
from smtdist.engine.local_cluster import MARK, executor_on, local_cluster, require_processes, unguarded
from smtdist.engine.passes import Engine
from smtdist.engine.session import executor_for
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError, SmtdistError
from smtdist.kernels.gpu import card
from smtdist.models.fit import fit

N_IMAGES, LEAF = 2400, 300


class Disturbed(Engine):
    """Calls each of some actions once, between two tasks of the statistics pass, when it has come so far."""

    def __init__(self, executor, actions, checkpoint=None):
        self.samples, self.actions = 0, dict(actions)
        super().__init__(executor, EventStream(self._count), checkpoint, "k")

    def _count(self, event):
        if event["kind"] == "progress" and event["pass"] == "statistics":
            self.samples = event["n_samples"]

    def heed_stop(self):
        super().heed_stop()
        for samples in [samples for samples in self.actions if samples <= self.samples]:
            self.actions.pop(samples)()


@pytest.mark.parametrize("checkpointed", [pytest.param(False, marks=pytest.mark.chaos), True])
def test_workers_join_and_leave_in_the_middle_of_a_pass(many_images, many_fitted, checkpointed, tmp_path):
    with local_cluster(1, threads=1, most=3) as cluster, executor_on(cluster) as executor:
        first = sorted(executor._info())

        def join():
            cluster.scale(3)
            until(lambda: executor.slots() == 3, 60, "two more workers")

        def leave():
            executor.client.retire_workers(first)
            assert not set(first) & set(executor._info())

        engine = Disturbed(executor, {LEAF: join, 4 * LEAF: leave}, tmp_path if checkpointed else None)
        model, records = fit(many_images, CONFIGURATION, engine)
        assert not engine.actions
    same_fits(model, many_fitted)
    assert records[2]["n_samples"] == N_IMAGES


def test_the_number_of_workers_follows_the_work(many_images, many_fitted):
    with executor_of(ClusterChoice("local", max_workers=2), 1) as executor:
        assert executor.slots() == 1
        seen = []

        def wait_for_more():
            until(lambda: executor.slots() == 2, 60, "a second worker")
            seen.append(executor.slots())

        model, _ = fit(many_images, CONFIGURATION, Disturbed(executor, {LEAF: wait_for_more}))
        assert seen == [2]
        executor.demand.patience = 0.0  # as if nothing had run for a long time
        until(lambda: executor.slots() == 1, 60, "a worker given back")
    same_fits(model, many_fitted)


def test_demand_grows_while_slots_are_full_and_shrinks_only_when_idle():
    now = [0.0]
    demand = Demand(2, 10, patience=60, clock=lambda: now[0])
    assert demand.wanted(running=0, present=2) == 2
    demand.seen(running=2, workers=2)
    assert demand.wanted(running=2, present=2) == 10
    demand.seen(running=6, workers=10)
    assert demand.wanted(running=6, present=10) == 10, "nobody goes while a task runs"
    now[0] = 30
    assert demand.wanted(running=1, present=7) == 7, "what was lost is not replaced for the last task"
    now[0] = 80
    assert demand.wanted(running=0, present=7) == 7
    now[0] = 91
    assert demand.wanted(running=0, present=7) == 2
    assert demand.wanted(running=0, present=1) == 2


def test_short_tasks_do_not_hide_that_slots_were_full():
    now = [0.0]
    demand = Demand(1, 4, clock=lambda: now[0])
    demand.seen(running=1, workers=1)
    demand.seen(running=0, workers=1)  # between two tasks
    assert demand.wanted(running=0, present=1) == 4
    now[0] = 6
    assert demand.wanted(running=0, present=1) == 1


def test_a_local_cluster_listens_on_loopback_only():
    with executor_of(ClusterChoice("local"), 1) as executor:
        pids = {os.getpid(), *executor.client.run(os.getpid).values()}
        addresses = {
            connection.laddr.ip
            for pid in pids
            for connection in psutil.Process(pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
    assert addresses == {"127.0.0.1"}


def test_a_local_cluster_with_certificates(tmp_path):
    choice = ClusterChoice("local", tls=tls.create(tmp_path / "tls"))
    with executor_of(choice, 1) as executor:
        assert all(address.startswith("tls://127.0.0.1:") for address in executor._info())


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ClusterChoice("tcp://192.0.2.1:8786"), "tls init.*insecure"),
        (ClusterChoice("192.0.2.1:8786"), "tls init.*insecure"),
        (ClusterChoice("ucx://192.0.2.1:8786"), "tls init.*insecure"),
        (ClusterChoice("tls://127.0.0.1:1"), "give tls"),
        (ClusterChoice("slrm"), "did you mean slurm"),
        (ClusterChoice("tcp://127.0.0.1:1", max_workers=3), "max_workers"),
        (ClusterChoice("local", max_workers=1), "less than the 2 workers"),
        (ClusterChoice("ssh"), r"needs config, a YAML file with .* hosts: \[head"),
        (ClusterChoice("local", config=Path("missing.yaml")), "missing.yaml"),
        (ClusterChoice("local", tls=Path("missing")), "tls init"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_starts(choice, said):
    with pytest.raises(ConfigurationError, match=said), executor_of(choice, 2):
        pass


def configured(tmp_path, name, text, **more):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return ClusterChoice(name, config=path, **more)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("local", "local: {host: 0.0.0.0}", "certificates.*insecure"),
        ("ssh", "ssh: {hosts: [192.0.2.1, 192.0.2.2, 192.0.2.3]}", "without encryption.*insecure"),
        (
            "ssh",
            "ssh: {hosts: [192.0.2.1, 192.0.2.2, 192.0.2.3], connect_options: {known_hosts: null}}",
            "known_hosts",
        ),
        ("ssh", "ssh: {hosts: [127.0.0.1]}", "one for each worker"),
        ("ssh", "ssh: {hosts: [127.0.0.1, 127.0.0.1]}", "workers asks for 2"),
        ("local", "local: [", "readable YAML"),
        ("local", "- a", "not a mapping"),
        ("local", "local: !!python/object/apply:os.getpid []", "readable YAML"),
    ],
)
def test_configurations_that_are_refused(tmp_path, name, text, said):
    if name == "ssh":
        pytest.importorskip("asyncssh")
    with pytest.raises(ConfigurationError, match=said), executor_of(configured(tmp_path, name, text), 2):
        pass


@pytest.mark.parametrize(
    ("name", "module", "package", "extra"),
    [
        ("slurm", "dask_jobqueue", "dask-jobqueue", "slurm"),
        ("ssh", "asyncssh", "asyncssh", "ssh"),
        ("kubernetes", "dask_kubernetes", "dask-kubernetes", "kubernetes"),
        ("cuda", "dask_cuda", "dask-cuda", "cuda-cluster"),
    ],
)
def test_a_missing_package_is_one_sentence(monkeypatch, name, module, package, extra):
    for loaded in [key for key in sys.modules if key.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(
            SmtdistError, match=rf"needs the package {package}.*pip install 'smtdist\[{extra}\]'"
        ),
        executor_of(ClusterChoice(name), 1),
    ):
        pass


RESOURCE = """
apiVersion: kubernetes.dask.org/v1
kind: DaskCluster
metadata: {name: sums, namespace: lab}
spec:
  worker: {replicas: 1, spec: {containers: [{name: worker, args: [dask, worker]}]}}
  scheduler: {spec: {containers: [{name: scheduler, args: [dask, scheduler%s]}]}}
"""


@pytest.fixture
def operator(monkeypatch):
    """Stands in for dask-kubernetes: a cluster in this process that remembers what it was asked."""
    asked = {}

    class KubeCluster(LocalCluster):
        def __init__(self, **options):
            asked.update(options)
            replicas = options["custom_cluster_spec"]["spec"]["worker"]["replicas"]
            super().__init__(n_workers=replicas, processes=False, dashboard_address="127.0.0.1:0")

    package, module = types.ModuleType("dask_kubernetes"), types.ModuleType("dask_kubernetes.operator")
    package.operator, module.KubeCluster = module, KubeCluster
    monkeypatch.setitem(sys.modules, "dask_kubernetes", package)
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", module)
    return asked


def test_kubernetes_gets_the_resource_as_it_is(operator, tmp_path):
    choice = configured(tmp_path, "kubernetes", RESOURCE % "", insecure=True)
    with executor_of(choice, 2) as executor:
        until(lambda: executor.slots() == 2)
    assert operator["custom_cluster_spec"]["metadata"] == {"name": "sums", "namespace": "lab"}
    assert operator["custom_cluster_spec"]["spec"]["worker"]["replicas"] == 2
    assert operator["namespace"] == "lab"


def test_kubernetes_without_encryption_is_refused_unless_asked_for(operator, tmp_path):
    for text, said in (
        (RESOURCE % "", "insecure=True"),
        (RESOURCE % ", --protocol, tls", 'cluster="tls://'),
    ):
        with pytest.raises(ConfigurationError, match=said):
            executor_of(configured(tmp_path, "kubernetes", text), 1).__enter__()
    with pytest.raises(ConfigurationError, match=r"kind: DaskCluster.* has kind Pod"):
        executor_of(configured(tmp_path, "kubernetes", "kind: Pod"), 1).__enter__()
    assert operator == {}


def test_cuda_gets_its_keywords_stays_on_loopback_and_needs_gpus(monkeypatch, tmp_path):
    asked = {}

    class LocalCUDACluster(LocalCluster):
        def __init__(self, **options):
            asked.update(options)
            super().__init__(
                n_workers=options["n_workers"],
                processes=False,
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            )

    module = types.ModuleType("dask_cuda")
    module.LocalCUDACluster = LocalCUDACluster
    monkeypatch.setitem(sys.modules, "dask_cuda", module)
    monkeypatch.setattr(card, "_why", {"none": card.ABSENT})
    with (
        pytest.raises(
            SmtdistError, match=r"1 of 1 worker of the CUDA .* no GPU: CuPy is not installed; install"
        ),
        executor_of(configured(tmp_path, "cuda", "cuda: {n_workers: 1}"), 1),
    ):
        pass
    install(monkeypatch)
    choice = configured(
        tmp_path,
        "cuda",
        "cuda: {rmm_pool_size: 0.5}\ndistributed: {admin: {system-monitor: {interval: 2s}}}",
    )
    with executor_of(choice, 1) as executor:
        assert executor.slots() == 1
        assert dask.config.get("distributed.admin.system-monitor.interval") == "2s"
        assert dask.config.get("distributed.admin.system-monitor.log-length")
    assert asked["rmm_pool_size"] == 0.5
    assert asked["host"] == "127.0.0.1"


HERE = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}


def fitted(cluster):
    """Return the sums of a small fit, on whatever `cluster` is."""
    images = small_images(0, 60, 8, 8)
    settings = Configuration(patch=3, dictionary=16, n_components=4)
    with executor_for(cluster) as executor:
        return fit(as_source(images), settings, Engine(executor))[0].statistics.second_moment


def test_a_cluster_of_dasks_is_taken_and_left_open():
    with LocalCluster(**HERE) as cluster:
        np.testing.assert_array_equal(fitted(cluster), fitted(None))
        assert cluster.status.name == "running"
    with pytest.raises(ConfigurationError, match="LocalCluster is closed; give one that is running"):
        fitted(cluster)


def test_a_client_that_cannot_be_used_is_refused_in_a_sentence():
    with LocalCluster(**HERE) as cluster:
        client = Client(cluster, set_as_default=False)
        client.close()
        with pytest.raises(ConfigurationError, match="Client is closed"):
            fitted(client)
    with pytest.raises(ConfigurationError, match="a Client, or a cluster of Dask's such as a LocalCluster"):
        fitted(types.SimpleNamespace(status="running"))


@pytest.mark.parametrize("kind", [Client, LocalCluster])
def test_what_is_asynchronous_is_refused(kind):
    async def within():
        async with kind(asynchronous=True, **HERE) as cluster:
            with pytest.raises(ConfigurationError, match=f"{kind.__name__} is asynchronous"):
                fitted(cluster)

    asyncio.run(within())


def test_workers_that_start_for_tasks_alone_are_waited_for_with_a_task(monkeypatch):
    monkeypatch.setattr(dask_executor, "FIRST_SECONDS", 0)
    with LocalCluster(**{**HERE, "n_workers": 0}) as cluster:
        with pytest.raises(SmtdistError, match=r"its cluster has asked for 0; .*minimum=1"):
            fitted(cluster)
        monkeypatch.setattr(dask_executor, "FIRST_SECONDS", 60)
        cluster.adapt(minimum=0, maximum=1, interval="50ms", wait_count=1)
        with executor_for(cluster) as executor:
            assert executor.result(executor.share(7)) == 7
            executor.client.cancel(executor.client.futures)
            gc.collect()  # the error of the first fit keeps its task, and so a worker, until its frames are collected
            until(lambda: not executor.client.nthreads(), 30, "all workers given back")
            monkeypatch.setattr(executor, "_counted_at", -1.0)
            assert executor.result(executor.share(8)) == 8, "between two passes"


def test_an_array_that_another_cluster_keeps_is_named(monkeypatch):
    with (
        LocalCluster(**HERE) as theirs,
        LocalCluster(**HERE) as ours,
        Client(theirs, set_as_default=False) as client,
    ):
        kept = client.persist(da.from_array(small_images(0, 60, 8, 8), chunks=(30, 8, 8, 1)))
        with executor_for(ours) as executor:
            piece = piece_of(as_source(kept), 0, 30)
            with pytest.raises(ConfigurationError, match=f"kept on the cluster {client.scheduler.address}"):
                executor.share(piece)
        with pytest.raises(DataError, match="parts cannot be had"), Client(ours):
            in_memory(kept, "array")


def test_workers_that_are_lost_for_ever_end_the_run_and_those_that_work_do_not():
    with LocalCluster(**HERE) as cluster, executor_for(cluster) as executor:
        for _ in range(3):
            for _ in range(dask_executor.LOSSES - 1):
                executor._tell_lost("tcp://gone:1", {"metrics": {}})
            assert executor.slots() == 1
            executor._receive((0.0, {"pass": "whitening"}))
        for _ in range(dask_executor.LOSSES):
            executor._receive_memory((0.0, {"worker": "tcp://gone:2"}))
        with pytest.raises(SmtdistError, match=r"lost again and again: 3 .*beyond its memory limit"):
            executor.slots()


@pytest.mark.parametrize(
    ("script", "certain", "said"),
    [
        ("call(True)", True, True),
        ("def main():\n    return call(True)\nmain()", True, True),
        ("if __name__ == '__main__':\n    call(True)", True, False),
        ("import multiprocessing as mp\nif mp.parent_process() is None:\n    call(False)", False, False),
        ("if __name__ != '__main__':\n    raise SystemExit\ncall(True)", True, False),
        ("x = __name__\ncall(False)", False, True),
        ("if 'a' < 'b':\n    call(True)", True, True),
    ],
)
def test_a_script_without_a_guard_is_known(tmp_path, script, certain, said):
    (tmp_path / "script.py").write_text(script)
    answers = []
    runpy.run_path(
        str(tmp_path / "script.py"),
        {"call": lambda certain: answers.append(unguarded(certain=certain))},
        "__main__",
    )
    assert answers == [said]
    assert not unguarded(certain=certain), "this test is no script"


@pytest.mark.parametrize("why", ["daemon", "importing", "loky", "importing, of ours"])
def test_a_process_that_may_start_no_workers_says_so(monkeypatch, why):
    current = types.SimpleNamespace(daemon=why == "daemon", _inheriting="importing" in why)
    monkeypatch.setattr("multiprocessing.current_process", lambda: current)
    method = "loky" if why == "loky" else "spawn"
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: method)
    if "of ours" in why:
        monkeypatch.setenv(MARK, "1")
        with pytest.raises(SystemExit):
            require_processes(1)
        return
    monkeypatch.delenv(MARK, raising=False)
    said = (
        "put that under `if __name__" if "importing" in why else "may start no others.*leave n_workers out"
    )
    with pytest.raises(ConfigurationError, match=said):
        require_processes(1)


def test_open_files_are_allowed_as_far_as_the_system_lets_us_or_counted_in_a_sentence(monkeypatch):
    limits = {"now": (64, 4096)}
    monkeypatch.setattr("resource.getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr("resource.setrlimit", lambda kind, both: limits.update(now=both))
    require_processes(4)
    assert limits["now"] == (64 + 12 * 4, 4096)
    with pytest.raises(SmtdistError, match=r"For 1,000 workers .* about 12,064 .* may open 4,096"):
        require_processes(1000)


def test_a_wait_for_workers_can_be_ended():
    rounds = []

    def waiting():
        rounds.append(threading.get_ident())
        if len(rounds) == 2:
            raise SmtdistError("enough")

    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        pytest.raises(SmtdistError, match="enough"),
        executor_on(cluster, waiting=waiting),
    ):
        pass


def test_room_is_looked_at_before_threads_of_a_cluster_take_it(monkeypatch):
    def none():
        raise MemoryBudgetError("no room")

    monkeypatch.setattr(session, "require_room", none)
    with pytest.raises(MemoryBudgetError, match="no room"), executor_for(None, 1):
        pass
