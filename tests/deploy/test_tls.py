"""Certificates: what is written, who may read it, and what each of them is good for."""

import socket
import ssl
import stat
import subprocess
import sys
import threading

import pytest
import yaml
from deploying import smtdist, write_table
from typer.testing import CliRunner

from smtdist.cli import app
from smtdist.cli.commands import COMMANDS, load
from smtdist.engine import tls
from smtdist.errors import ConfigurationError, SmtdistError

pytest.importorskip("cryptography", reason="needs the extra tls")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tls.create(tmp_path_factory.mktemp("certificates") / "tls")


def test_init_writes_private_files_and_a_configuration_for_dask(tmp_path):
    said = smtdist("tls", "init", tmp_path / "tls", "--json")
    made = tmp_path / "tls"
    assert said["folder"] == str(made)
    assert sorted(said["files"]) == sorted(path.name for path in made.iterdir())
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()} == {0o600}
    comm = yaml.safe_load((made / "dask.yaml").read_text())["distributed"]["comm"]
    assert comm["require-encryption"] is True
    for role in tls.ROLES:
        assert comm["tls"][role] == {
            "cert": str(made / f"{role}.pem"),
            "key": str(made / f"{role}-key.pem"),
        }
    keys = [path.name for path in made.iterdir() if "PRIVATE KEY" in path.read_text()]
    assert sorted(keys) == ["client-key.pem", "scheduler-key.pem", "worker-key.pem"], (
        "none of the authority"
    )


def test_init_replaces_nothing_and_leaves_nothing(tmp_path, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = CliRunner().invoke(app, ["tls", "init", str(folder)])
    assert result.exit_code == 1
    assert "exists" in result.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["tls"]


def test_without_the_package_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SmtdistError, match="pip install cryptography"):
        tls.create(tmp_path / "tls")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_incomplete_or_public_is_refused(tmp_path):
    made = tls.create(tmp_path / "tls")
    key = made / "client-key.pem"
    key.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        tls.security_from(made)
    key.unlink()
    with pytest.raises(ConfigurationError, match=r"no client-key\.pem"):
        tls.security_from(made)


def meeting(server, client):
    """Let two contexts shake hands over a socket; return what went wrong on the server's side, or None."""
    left, right = socket.socketpair()
    said = []

    def serve():
        try:
            with server.wrap_socket(left, server_side=True) as connection:
                connection.sendall(b"welcome")
        except (ssl.SSLError, OSError) as error:
            said.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(right) as connection:
            if connection.recv(16) != b"welcome":
                said.append("nothing came")
    except (ssl.SSLError, OSError) as error:
        said.append(error)
    finally:
        thread.join()
        left.close()
        right.close()
    return said


def contexts(folder, server, client):
    security = tls.security_from(folder, tls.ROLES)
    return (
        security.get_listen_args(server)["ssl_context"],
        security.get_connection_args(client)["ssl_context"],
    )


@pytest.mark.parametrize("client", tls.ROLES)
@pytest.mark.parametrize("server", ["scheduler", "worker"])
def test_all_who_have_certificates_can_meet(folder, server, client):
    assert meeting(*contexts(folder, server, client)) == []


def test_a_client_cannot_pose_as_a_scheduler(folder):
    assert meeting(*contexts(folder, "client", "worker"))


@pytest.mark.parametrize(("server", "client"), [("scheduler", "worker"), ("worker", "client")])
def test_another_authority_is_refused_by_either_side(folder, tmp_path, server, client):
    other = tls.create(tmp_path / "other")
    assert meeting(contexts(folder, server, client)[0], contexts(other, server, client)[1])
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    assert meeting(contexts(folder, server, client)[0], nobody)


def test_certificates_pass_another_implementation(folder):
    for role, purposes in (("scheduler", ("sslserver", "sslclient")), ("client", ("sslclient",))):
        for purpose in purposes:
            asked = ["openssl", "verify", "-purpose", purpose, "-CAfile"]
            command = [*asked, folder / "ca.pem", folder / f"{role}.pem"]
            try:
                subprocess.run(command, check=True, capture_output=True)
            except FileNotFoundError:
                pytest.skip("no openssl")


def test_every_command_that_takes_a_cluster_takes_what_belongs_to_it():
    found = 0
    for name in COMMANDS:
        command = load(name)
        for inner in [command, *getattr(command, "commands", {}).values()]:
            options = {option for parameter in inner.params for option in parameter.opts}
            if "--cluster" in options:
                found += 1
                assert {"--cluster-config", "--tls", "--insecure", "--max-workers"} <= options, name
    assert found >= 9


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cluster", "tcp://192.0.2.1:8786"),
        ("--cluster", "tls://127.0.0.1:1"),
        ("--cluster", "local", "--tls", "missing"),
        ("--cluster", "slurm", "--cluster-config", "missing.yaml"),
        ("--cluster", "ssh", "--max-workers", "4"),
    ],
)
def test_wrong_usage_ends_with_2_and_leaves_nothing(tmp_path, tmp_path_factory, arguments):
    words = ["fit", write_table(tmp_path_factory.mktemp("table")), "--model", "points"]
    words += ["--out", str(tmp_path / "x.h5"), *arguments]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    assert list(tmp_path.iterdir()) == []
