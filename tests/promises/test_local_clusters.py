"""`--workers N` starts processes that only their own run can talk to: other users of the machine have no certificate."""

import contextlib
import socket
import ssl

import pytest

from smtdist.engine import clusters, tls
from smtdist.engine.cluster_choice import ClusterChoice


@pytest.fixture
def within(tmp_path):
    """Choose a local cluster within this process."""
    path = tmp_path / "c.yaml"
    path.write_text("local: {processes: false}\n")
    return lambda: clusters.executor_of(ClusterChoice(config=path), 1)


def hung_up_on(address, certificates=None):
    """Connect as a stranger, by TLS with certificates of their own where they have some; say whether that ends at once."""
    host, port = address.rpartition("/")[2].split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificates is not None:
        context.load_cert_chain(certificates / "client.pem", certificates / "client-key.pem")
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
        try:
            talk = plain if certificates is None else stack.enter_context(context.wrap_socket(plain))
            talk.sendall(b"hello" * 100)
            while talk.recv(100):  # what TLS has against it
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
    return True


def test_nobody_without_the_certificates_of_a_run_can_connect(within, tmp_path):
    own = tls.create(tmp_path / "tls")
    with within() as executor:
        scheduler = executor.client.scheduler_info()
        addresses = [scheduler["address"], *scheduler["workers"]]
        assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
        assert all(hung_up_on(address, by) for address in addresses for by in (None, own))
        assert executor.client.submit(int, "7").result() == 7


def test_certificates_of_a_run_are_in_no_file(within, tmp_path):
    with within() as executor:
        assert "PRIVATE KEY" in executor.client.security.tls_client_key
        assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_insecure_does_without():
    for insecure, protocol in ((False, "tls://"), (True, None)):
        options = {}
        clusters._encrypt(ClusterChoice(insecure=insecure), options)
        assert options.get("protocol") == protocol
