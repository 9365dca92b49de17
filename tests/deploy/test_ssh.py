"""deploy/ssh against a real sshd on loopback, with keys of its own."""

import getpass
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from deploying import (
    MORE,
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
)

FOLDER = ROOT / "deploy" / "ssh"
SSHD = shutil.which("sshd", path=os.pathsep.join(["/usr/sbin", os.environ.get("PATH", "")]))
NEEDED = [SSHD, shutil.which("ssh"), shutil.which("ssh-keygen")]
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not all(NEEDED), reason="no sshd: apt-get install openssh-server"),
]

SERVER = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv PYTHONPATH={root}
"""

USER = """
Host head node1 node2
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/user
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/home/.ssh/known_hosts
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """Yield (the environment of a user whose configuration names three hosts, the daemon's process)."""
    folder = tmp_path_factory.mktemp("ssh")
    home = folder / "home" / ".ssh"
    home.mkdir(parents=True, mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    values = {"port": port, "folder": folder, "root": ROOT, "user": getpass.getuser()}
    (folder / "sshd_config").write_text(SERVER.format(**values))
    (home / "config").write_text(USER.format(**values))
    (home / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with daemon([SSHD, "-D", "-e", "-f", folder / "sshd_config"], folder / "sshd.log") as process:
        until(lambda: listens(port), 20, "sshd")
        settings = {"HOME": str(folder / "home"), "SSH": f"ssh -F {home / 'config'}"}
        yield environment(**settings), process


@pytest.fixture
def user(sshd):
    return sshd[0]


def nannies(process):
    """Return the processes on the "hosts" that look after a worker."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            words = child.cmdline()
        except psutil.Error:
            continue
        if "distributed.cli.dask_spec" in words and any("distributed.Nanny" in word for word in words):
            found.append(child)
    return found


def test_a_fit_by_the_script_survives_the_loss_of_a_host(sshd, data, want, tmp_path):
    user, process = sshd
    environ = {**user, "PATH": os.pathsep.join([commands(tmp_path), user["PATH"]])}
    out, sums = tmp_path / "m.h5", tmp_path / "checkpoint" / "statistics"
    arguments = fit_arguments(data, out, *MORE, "--checkpoint", tmp_path / "checkpoint")[1:]
    command = [FOLDER / "fit.sh", FOLDER / "cluster.yaml", tmp_path / "tls", *arguments]
    with subprocess.Popen(
        list(map(str, command)), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        until(lambda: run.poll() is not None or any(sums.glob("*.h5")), 240, "a partial sum")
        hosts = nannies(process)
        assert len(hosts) == 2, run.communicate()
        workers = [worker for host in hosts for worker in host.children(recursive=True)]
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)
        assert not (sums / "result.h5").exists(), "the pass has ended too soon to be disturbed"
        for host in hosts:
            assert "PRIVATE" not in " ".join(host.cmdline())
        for gone in [hosts[0], *hosts[0].children(recursive=True)]:
            gone.kill()
        for worker in workers:
            if worker.is_running():
                worker.send_signal(signal.SIGCONT)
        _, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert_same_model(out, want)
    until(lambda: not nannies(process), 30, "the end of the workers")


def refused(user, *arguments, code, **more):
    command = [sys.executable, "-c", "from smtdist.cli import main; main()", *arguments]
    done = subprocess.run(
        list(map(str, command)), env={**user, **more}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_without_certificates_nothing_starts(user, data, tmp_path):
    where = ["--cluster", "ssh", "--cluster-config", FOLDER / "cluster.yaml"]
    said = refused(user, *fit_arguments(data, tmp_path / "m.h5", *where), code=2)
    assert "without encryption" in said
    assert "--tls" in said


def test_a_host_that_shows_another_key_is_not_used(user, data, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(user["HOME"], home)
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    known, config = home / ".ssh" / "known_hosts", home / ".ssh" / "config"
    known.write_text(f"{known.read_text().split()[0]} {other.with_suffix('.pub').read_text()}")
    config.write_text(config.read_text().replace(user["HOME"], str(home)))
    smtdist("tls", "init", tmp_path / "tls")
    where = ["--cluster", "ssh", "--cluster-config", FOLDER / "cluster.yaml", "--tls", tmp_path / "tls"]
    said = refused(user, *fit_arguments(data, tmp_path / "m.h5", *where), code=1, HOME=str(home))
    assert "did not start" in said
    assert "Host key is not trusted" in said
