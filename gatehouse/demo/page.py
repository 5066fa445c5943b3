"""Serves the demo's one page. Everything that it shows it asks the hub's HTTP door for, like any web page would."""
from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

SOURCE: Final = Path(__file__).with_name("page.html")
SETTINGS_MARK: Final = "{/* settings */}"


def page_with(settings: dict[str, Any]) -> bytes:
    """The page, with the values it is to know."""
    shown = json.dumps(settings).replace("<", "\\u003c")    # nothing in a value may end the script
    return SOURCE.read_text(encoding="utf-8").replace(SETTINGS_MARK, shown).encode()


class PageServer:
    """Listens on loopback until stopped. Raises OSError where the port is in use."""

    def __init__(self, port: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _Request)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, name="page")

    def start(self, settings: dict[str, Any]) -> None:
        """Serve the page with these values."""
        self._server.page = page_with(settings)    # type: ignore[attr-defined]
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Request(BaseHTTPRequestHandler):
    """Answers GET / and nothing else."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/":
            self.send_error(404)
            return
        page: bytes = self.server.page    # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:
        """A page that is loaded is no news."""
