"""What the manifests say is started, as unprivileged processes with TLS, to the end of a fit."""

import json
import os
from pathlib import Path

import dockerfile
import pytest
from arrays_in_files import write_arrays
from boxes import Node, why_not
from calling import arrays, same
from deploying import until
from drawing import small_images
from manifests import client, scheduler, workers

from smtdist.engine import tls

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]

HEAD, JOB = scheduler(), client()
HANDS = [group[0] for group in workers().values()]
PATIENCE = 120


class Volumes:
    """Folders that stand for the claims, the secret and the emptyDirs, owned as a kubelet leaves them."""

    def __init__(self, folder, secrets):
        self.folder, self.secrets = Path(folder), secrets

    def claim(self, name):
        """Return the folder that stands for a claim."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def with_secrets(self, secrets):
        """Return the same volumes, but for other certificates."""
        return Volumes(self.folder, secrets)

    def __call__(self, pod, volume):
        group = pod.spec["securityContext"]["fsGroup"]
        if "persistentVolumeClaim" in volume:
            return _owned(self.claim(volume["persistentVolumeClaim"]["claimName"]), group, 0o2775)
        path = self.folder / pod.name / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        if "secret" not in volume:
            assert "emptyDir" in volume, volume
            return _owned(path, group, 0o2777)
        for item in volume["secret"]["items"]:
            target = path / item["path"]
            target.write_bytes((self.secrets / item["key"]).read_bytes())
            _owned(target, group, volume["secret"]["defaultMode"])
        return _owned(path, group, 0o2755)


def _owned(path, group, mode):
    os.chown(path, 0, group)
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def volumes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("volumes")
    # with `smtdist tls init` the same files
    made = Volumes(folder, tls.create(folder / "tls"))
    images = {"train/images": small_images(0, 600, 12, 12)}
    write_arrays(made.claim("smtdist-data") / "images.h5", images, chunks=(100, 12, 12, 1))
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory, volumes):
    """A scheduler and a worker of each group, ready by their own probes."""
    if reason := why_not():
        pytest.skip(reason)
    with Node(tmp_path_factory.mktemp("node"), dockerfile.environment("cpu")) as node:
        for pod in (HEAD, *HANDS, JOB):
            node.add(pod.name)
        for pod in (HEAD, *HANDS):
            node.start(pod, volumes)
        for pod in (HEAD, *HANDS):
            ready(node, volumes, pod)
        yield node


def ready(node, volumes, pod):
    """Wait until a pod is ready by its own probe."""
    probe = pod.container["readinessProbe"]["exec"]["command"]
    until(lambda: node.run(pod, volumes, probe).returncode == 0, PATIENCE, f"{pod.name} to be ready")


def test_a_fit_that_loses_its_pod_and_a_worker_equals_a_serial_one(node, volumes):
    work = volumes.claim("smtdist-work")

    def start_until(name):
        """Start the job's pod and return it when a pass has ended."""
        process, passed = node.start(JOB, volumes), f"checkpoint/{name}*/result.h5"
        until(lambda: any(work.glob(passed)) or process.poll() is not None, PATIENCE, f"the end of {name}")
        assert process.poll() is None, node.output(JOB)[1].read_text()
        return process

    start_until("whitening")
    node.kill(JOB.name)
    assert not (work / "model.h5").exists()

    again = start_until("dictionary")
    node.kill(HANDS[-1].name)
    assert again.wait(timeout=300) == 0, node.output(JOB)[1].read_text()
    found = json.loads(node.output(JOB)[0].read_text())
    assert {record["name"]: record["read_bytes"] for record in found["passes"]}["whitening"] == 0, (
        "not resumed"
    )
    node.start(HANDS[-1], volumes)  # as its Deployment would
    ready(node, volumes, HANDS[-1])

    serial = [word for word in JOB.argv() if not word.startswith(("--cluster", "--checkpoint", "--out"))]
    alone = node.run(JOB, volumes, [*serial, "--workers=0", "--out=/work/serial.h5"])
    assert alone.returncode == 0, alone.stderr
    same(arrays(work / "model.h5"), arrays(work / "serial.h5"))
    assert (work / "model.h5").stat().st_uid == JOB.spec["securityContext"]["runAsUser"]


def test_both_worker_groups_took_part(node):
    log = node.output(HEAD)[1].read_text()
    for pod in HANDS:
        assert f"name: {pod.name}" in log
        address = node.addresses[pod.name][0]
        assert f"tls://{address}:{pod.container['ports'][0]['containerPort']}" in log
    assert "tcp://" not in log


@pytest.mark.parametrize("pod", [HEAD, *HANDS, JOB], ids=lambda pod: pod.name)
def test_a_process_is_nobody_and_writes_only_into_volumes(node, volumes, pod):
    status = node.run(pod, volumes, ["cat", "/proc/self/status"]).stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    user = str(pod.spec["securityContext"]["runAsUser"])
    assert fields["Uid"].split() == [user] * 4
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert fields["NoNewPrivs"] == "1"
    places = {where: writable for _, where, writable in pod.mounts()} | {"": False, "/opt/smtdist": False}
    for where, writable in places.items():
        wrote = node.run(pod, volumes, ["mkdir", f"{where}/probe"])
        assert (wrote.returncode == 0) is writable, (where, wrote.stderr)
        if writable:
            assert node.run(pod, volumes, ["rmdir", f"{where}/probe"]).returncode == 0
        else:
            assert "Read-only file system" in wrote.stderr


CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


def test_no_dashboard_beyond_loopback(node, volumes):
    for pod in (HEAD, *HANDS):
        address = node.addresses[pod.name][0]
        port = str(pod.container["ports"][0]["containerPort"])
        assert node.run(JOB, volumes, ["python", "-c", CONNECT, address, port]).returncode == 0
        refused = node.run(JOB, volumes, ["python", "-c", CONNECT, address, "8787"])
        assert "ConnectionRefusedError" in refused.stderr


@pytest.mark.parametrize("how", ["another authority", "no encryption"])
def test_a_stranger_is_turned_away(node, volumes, tmp_path, how):
    argv = [word.replace("/work/", "/work/strange-") for word in JOB.argv()]
    if how == "another authority":
        volumes = volumes.with_secrets(tls.create(tmp_path / "other"))
    else:
        plain = "tcp://smtdist-scheduler:8786"
        unset = ["env", "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=false"]
        argv = [*unset, *(f"--cluster={plain}" if word.startswith("--cluster") else word for word in argv)]
        unasked = node.run(JOB, volumes, argv)
        assert unasked.returncode == 2, unasked.stderr
        assert "without encryption" in unasked.stderr
        argv.append("--insecure")
    tried = node.run(JOB, volumes, argv)
    assert tried.returncode == 1, tried.stderr
    assert "No Dask scheduler answers" in tried.stderr
    assert "Traceback" not in tried.stderr
    assert not (volumes.claim("smtdist-work") / "strange-model.h5").exists()
