"""Clusters by kind: what is refused and why, workers that come and go in the middle of a pass, what a kind is given."""

import os
import sys
import threading
import types
from pathlib import Path

import dask
import h5py
import numpy as np
import psutil
import pytest
from deploying import until
from distributed import LocalCluster
from drawing import small_images

from smtdist.configuration import Configuration
from smtdist.data.array import as_source
from smtdist.engine import tls
from smtdist.engine.adaptive import Demand
from smtdist.engine.cluster_choice import ClusterChoice
from smtdist.engine.clusters import executor_of
from smtdist.engine.events import EventStream
from smtdist.engine.executor import SerialExecutor
from smtdist.engine.local_cluster import executor_on, local_cluster
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, SmtdistError
from smtdist.models.fit import fit

SETTINGS = Configuration(patch=4, dictionary=200, n_components=8, threshold=0.4, context=2, flip=True)
N_IMAGES, LEAF = 2400, 300


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "images.h5"
    with h5py.File(path, "w") as file:
        pixels = small_images(0, N_IMAGES, 12, 12)
        file.create_dataset("x", data=pixels, chunks=(100, 12, 12, 1), compression="lzf")
    return as_source((path, "x"))


@pytest.fixture(scope="module")
def want(images):
    return fit(images, SETTINGS, Engine(SerialExecutor(2)))[0]


def assert_same_bits(one, other):
    for name in ("second_moment", "context_scatter", "cooccurrence"):
        np.testing.assert_array_equal(getattr(one.statistics, name), getattr(other.statistics, name))
    np.testing.assert_array_equal(one.embedding.components, other.embedding.components)


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
def test_workers_join_and_leave_in_the_middle_of_a_pass(images, want, checkpointed, tmp_path):
    with local_cluster(1, threads=1, most=3) as cluster, executor_on(cluster) as executor:
        first = sorted(executor._info())

        def join():
            cluster.scale(3)
            until(lambda: executor.slots() == 3, 60, "two more workers")

        def leave():
            executor.client.retire_workers(first)
            assert not set(first) & set(executor._info())

        engine = Disturbed(executor, {LEAF: join, 4 * LEAF: leave}, tmp_path if checkpointed else None)
        model, records = fit(images, SETTINGS, engine)
        assert not engine.actions
    assert_same_bits(model, want)
    assert records[2]["n_samples"] == N_IMAGES


def test_the_number_of_workers_follows_the_work(images, want):
    with executor_of(ClusterChoice("local", max_workers=2), 1) as executor:
        assert executor.slots() == 1
        seen = []

        def wait_for_more():
            until(lambda: executor.slots() == 2, 60, "a second worker")
            seen.append(executor.slots())

        model, _ = fit(images, SETTINGS, Disturbed(executor, {LEAF: wait_for_more}))
        assert seen == [2]
        executor.demand.patience = 0.0  # as if nothing had run for a long time
        until(lambda: executor.slots() == 1, 60, "a worker given back")
    assert_same_bits(model, want)


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
        (ClusterChoice("ssh"), "needs config"),
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
    ("name", "module", "package"),
    [
        ("slurm", "dask_jobqueue", "dask-jobqueue"),
        ("ssh", "asyncssh", "asyncssh"),
        ("kubernetes", "dask_kubernetes", "dask-kubernetes"),
        ("cuda", "dask_cuda", "dask-cuda"),
    ],
)
def test_a_missing_package_is_one_sentence(monkeypatch, name, module, package):
    for loaded in [key for key in sys.modules if key.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(SmtdistError, match=rf"needs the package {package}.*pip install 'smtdist\[{name}\]'"),
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
    with pytest.raises(ConfigurationError, match="DaskCluster"):
        executor_of(configured(tmp_path, "kubernetes", "kind: Pod"), 1).__enter__()
    assert operator == {}


def test_cuda_gets_its_keywords_and_stays_on_loopback(monkeypatch, tmp_path):
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
