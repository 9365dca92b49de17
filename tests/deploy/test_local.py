"""deploy/local: a scheduler and workers with TLS, and nobody else."""

import os
import re
import subprocess
import sys

import psutil
import pytest
from deploying import (
    ROOT,
    assert_same_model,
    commands,
    daemon,
    environment,
    fit_arguments,
    free_port,
    listens,
    smtdist,
    until,
    write_images,
    write_table,
)
from distributed import Client

from smtdist.engine import tls

pytest.importorskip("cryptography", reason="needs the extra tls")
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]
SCRIPT = ROOT / "deploy" / "local" / "cluster.sh"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("local")


@pytest.fixture(scope="module")
def cluster(folder):
    """Yield (the port of the scheduler that the script has started, the script's process)."""
    port = free_port()
    settings = environment(PORT=str(port), DASHBOARD="127.0.0.1:0")
    settings["PATH"] = os.pathsep.join([commands(folder), settings["PATH"]])
    with daemon([SCRIPT, folder / "tls", "2"], folder / "cluster.log", env=settings) as process:
        until(lambda: listens(port), 60, "the scheduler")
        with Client(f"tls://127.0.0.1:{port}", security=tls.security_from(folder / "tls")) as client:
            client.wait_for_workers(2, timeout=60)
        yield port, process


def test_a_fit_from_outside_has_the_same_bits(folder, cluster):
    data = write_images(folder / "images.h5")
    smtdist(*fit_arguments(data, folder / "want.h5", "--quiet"))
    where = ["--cluster", f"tls://127.0.0.1:{cluster[0]}", "--tls", folder / "tls"]
    smtdist(*fit_arguments(data, folder / "m.h5", *where, "--quiet"))
    assert_same_model(folder / "m.h5", folder / "want.h5")


def test_dasks_own_configuration_does_as_well(folder, cluster):
    out = folder / "s.h5"
    where = ["--cluster", f"tls://127.0.0.1:{cluster[0]}", "--cluster-config", folder / "tls" / "dask.yaml"]
    smtdist("fit", "--model", "points", write_table(folder), "--out", out, *where, "--quiet")
    assert out.exists()


@pytest.mark.parametrize(
    ("scheme", "certificates", "said"),
    [
        ("tls", "another", "No Dask scheduler answers.*certificate"),
        ("tls", "none", "asks for certificates"),
        ("tcp", "none", "No Dask scheduler answers"),
    ],
)
def test_a_client_that_is_not_known_is_refused(folder, cluster, tmp_path, scheme, certificates, said):
    more = []
    if certificates == "another":
        tls.create(tmp_path / "another")
        more = ["--tls", tmp_path / "another"]
    out = tmp_path / "s.h5"
    address = f"{scheme}://127.0.0.1:{cluster[0]}"
    code = 2 if (scheme, certificates) == ("tls", "none") else 1
    fit = ["fit", "--model", "points", write_table(tmp_path), "--out", out]
    err = smtdist(*fit, "--cluster", address, *more, "--quiet", code=code)
    assert not out.exists()
    assert re.search(said, err), err


def worker_command(port, folder, scheme="tls"):
    command = [sys.executable, "-m", "distributed.cli.dask_worker", f"{scheme}://127.0.0.1:{port}"]
    command += ["--name", "stranger", "--nthreads", "1", "--dashboard-address", "127.0.0.1:0", "--no-nanny"]
    if scheme == "tls":
        command += ["--protocol", "tls", "--tls-ca-file", folder / "ca.pem"]
        command += ["--tls-cert", folder / "worker.pem", "--tls-key", folder / "worker-key.pem"]
    return [*map(str, command), "--death-timeout", "8"]


def names_of_workers(folder, port):
    with Client(f"tls://127.0.0.1:{port}", security=tls.security_from(folder)) as client:
        return {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}


@pytest.mark.parametrize("kind", ["another authority", "no certificate"])
def test_a_worker_that_is_not_known_is_refused(folder, cluster, tmp_path, kind):
    port = cluster[0]
    certificates, scheme = tls.create(tmp_path / "another"), "tls"
    if kind == "no certificate":
        scheme = "tcp"
    done = subprocess.run(
        worker_command(port, certificates, scheme),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0 or "Registered to" not in done.stderr
    assert "stranger" not in names_of_workers(folder / "tls", port)


def test_a_worker_with_a_certificate_joins(folder, cluster):
    with daemon(worker_command(cluster[0], folder / "tls"), folder / "joins.log", env=environment()):
        until(lambda: "stranger" in names_of_workers(folder / "tls", cluster[0]), 60, "the worker")


def test_all_listen_on_loopback_and_end_with_the_script(folder, cluster):
    process = cluster[1]
    children = psutil.Process(process.pid).children(recursive=True)
    listening = {
        connection.laddr.ip
        for child in children
        for connection in child.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    assert "PRIVATE KEY" not in (folder / "cluster.log").read_text()
    process.terminate()
    assert process.wait(60) == 143
    psutil.wait_procs(children, timeout=30)
    assert not [
        child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    ]
