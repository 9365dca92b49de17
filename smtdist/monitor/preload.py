"""Loaded by schedulers and workers as they start: the page, and metrics. `dask scheduler --preload smtdist.monitor.preload`.

Their web servers may be asked by some names only: a page of another site must not read them. A browser lets a page of
`evil.example` talk to whatever that name leads to, which may be this machine a moment later. Such requests name
`evil.example` as their Host, and those of pages from elsewhere name their Origin.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from tornado import httputil, web

ALLOWED: Final = "SMTDIST_DASHBOARD_HOSTS"
"""Environment variable of more names, with commas between them; read where a server starts."""
_ORIGINS: Final = ("Origin", "Sec-Websocket-Origin")


def guard(server: Any) -> None:
    """Let the web server of a scheduler or worker answer to loopback names, its own and those that `ALLOWED` lists only.

    Its own are the machine's name and the address that a request came to. Others get 403 and a sentence.
    """
    application = getattr(server, "http_application", None)
    if application is None:
        return
    listed = (name.strip().lower() for name in os.environ.get(ALLOWED, "").split(","))
    names = {"localhost", socket.gethostname().lower(), *filter(None, listed)}
    # the full name may have to be asked for
    threading.Thread(target=lambda: names.add(socket.getfqdn().lower()), daemon=True).start()
    found = application.find_handler

    def find_handler(request: httputil.HTTPServerRequest, **how: Any) -> Any:
        wrong = _stranger(request, names)
        if wrong is None:
            return found(request, **how)
        return application.get_handler_delegate(request, _Refusal, {"name": wrong})

    application.find_handler = find_handler


def _stranger(request: httputil.HTTPServerRequest, names: set[str]) -> str | None:
    """Return the name of a request that may not be answered to; browsers always send one."""
    given = [request.headers.get("Host"), *map(request.headers.get, _ORIGINS)]
    for place, text in enumerate(given):
        if text is None:
            continue
        name = _host(text if place else f"//{text}")
        if name not in names and not _is_own(name, request):
            return name
    return None


def _host(address: str) -> str:
    with suppress(ValueError):
        return (urlsplit(address).hostname or "").rstrip(".")
    return ""


def _is_own(name: str, request: httputil.HTTPServerRequest) -> bool:
    """Say whether a name is an address of the loopback interface, or the one that the request came to."""
    with suppress(ValueError):
        if ipaddress.ip_address(name).is_loopback:
            return True
    stream = getattr(request.connection, "stream", None)
    with suppress(AttributeError, OSError):
        return bool(name == stream.socket.getsockname()[0])  # type: ignore[union-attr]
    return False


class _Refusal(web.RequestHandler):
    def initialize(self, name: str) -> None:
        self._name = name

    def prepare(self) -> None:
        """Answer whatever is asked."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(
            f"This page is not shown under the name {self._name!r}; open it as localhost, or start the cluster with "
            f"{ALLOWED}={self._name} in its environment.\n"
        )


async def dask_setup(server: Any) -> None:
    """Add what can be added; a server starts with or without it, but not for strangers to read."""
    guard(server)
    try:
        if hasattr(server, "workers") and hasattr(server, "add_plugin"):
            from smtdist.monitor.dashboard import SmtdistPage

            page = SmtdistPage()
            await page.start(server)
            server.add_plugin(page)
        else:
            from smtdist.engine.events import DONE
            from smtdist.monitor import metrics

            metrics.expose(metrics.of_worker, DONE)
    except Exception:
        logging.getLogger("smtdist").warning("views of runs are not available here", exc_info=True)
