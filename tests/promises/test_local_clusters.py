"""`--workers N` starts processes that only their own run can talk to: other users of the machine have no certificate."""

import pytest
from distributed import Client

from smtdist.engine import clusters, tls
from smtdist.engine.cluster_choice import ClusterChoice


@pytest.fixture
def within(tmp_path):
    """Choose a local cluster within this process."""
    path = tmp_path / "c.yaml"
    path.write_text("local: {processes: false}\n")
    return lambda: clusters.executor_of(ClusterChoice(config=path), 1)


def stranger(address, security=None):
    with Client(address, security=security, timeout="1s", set_as_default=False):
        return "connected"


def test_nobody_without_the_certificates_of_a_run_can_connect(within):
    with within() as executor:
        scheduler = executor.client.scheduler_info()
        addresses = [scheduler["address"], *scheduler["workers"]]
        assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
        for security in (None, tls.temporary()):  # the second makes its own
            scheme = "tls" if security else "tcp"
            with pytest.raises((OSError, TypeError)):
                stranger(addresses[0].replace("tls", scheme, 1), security)
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
