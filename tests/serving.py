"""A web server on this machine that serves files with ranges of bytes, or without."""

import re
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Ranges(SimpleHTTPRequestHandler):
    """Serves files with or without ranges of bytes; `fail` makes it break off, `asked` notes what was asked for."""

    ranges, fail, asked = True, False, []

    def do_GET(self):
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if self.fail:
            self.send_error(500)
        elif found and self.ranges:
            self.send_range(*map(int, found.groups()))
        else:
            super().do_GET()

    def send_range(self, first, last):
        with open(self.translate_path(self.path), "rb") as file:
            file.seek(first)
            body = file.read(last - first + 1)
            size = file.seek(0, 2)
        self.asked.append(len(body))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes" if self.ranges else "none")
        super().end_headers()

    def log_message(self, *arguments):
        pass


@contextmanager
def served(folder, **flags):
    handler = type("Handler", (Ranges,), {"asked": [], **flags})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", handler
        finally:
            server.shutdown()
            thread.join()
