"""The web servers of a cluster answer to names of their machine only: no page of another site reads them."""

import asyncio
import socket
import urllib.error
import urllib.request

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from smtdist.engine.local_cluster import local_cluster
from smtdist.monitor import preload as hosts


@pytest.fixture(scope="module")
def servers():
    """Addresses of the web servers of a scheduler and of a worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(hosts.ALLOWED, "dash.example, other.example")
        with local_cluster(1, processes=False, protocol="tcp://") as cluster:
            scheduler = cluster.scheduler
            (worker,) = scheduler.workers.values()
            ports = scheduler.services["dashboard"].port, worker.services["dashboard"]
            yield [f"127.0.0.1:{port}" for port in ports]


def status(address, path="/health", **headers):
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(
    "name", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "dash.example", socket.gethostname()]
)
def test_names_of_this_machine_and_listed_ones_are_answered_to(servers, name):
    assert status(servers[0], Host=f"{name}:8787")[0] == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "localhost.evil.example", "192.0.2.1", "127.0.0.1.evil.example", ""]
)
@pytest.mark.parametrize("path", ["/smtdist", "/status", "/json/counts.json", "/metrics"])
def test_other_names_are_refused(servers, name, path):
    for address in servers:
        code, text = status(address, path, Host=f"{name}:8787")
        assert code == 403
        assert hosts.ALLOWED in text


def refused(address, origin):
    """Say whether a websocket of a page from there is refused for that reason; Bokeh asks for a token of its own."""

    async def connect():
        url = f"ws://{address}/smtdist/ws?bokeh-protocol-version=1.0"
        (await websocket_connect(HTTPRequest(url, headers={"Origin": origin}))).close()

    try:
        asyncio.run(connect())
    except HTTPClientError as error:
        return error.code == 403 and hosts.ALLOWED in error.response.body.decode()
    return False


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://evil.example:8787"])
def test_websockets_of_pages_from_elsewhere_are_refused(servers, origin):
    assert refused(servers[0], origin)


def test_its_own_page_gets_as_far_as_bokeh(servers):
    own = f"http://{servers[0]}"
    assert not refused(servers[0], own)
    assert status(servers[0], Origin=own)[0] == 200
