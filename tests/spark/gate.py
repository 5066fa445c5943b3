"""A door in front of a hub's that holds back what Spark writes until the test lets it through, write by write.

So a test knows what is going on when it kills something: this many writes are done, every task waits with its next one.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

HELD: Final = "/batches"
"""How the path of a write of the sink ends."""

DEADLINE_S: Final = 400
FORWARDED: Final = ("Content-Type", "Idempotency-Key")


class Gate(ThreadingHTTPServer):
    """Passes everything on to the hub at `port`, writes of the sink as they are let through."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.port = port
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._changed = threading.Condition()
        self._let = 0
        self._open = False
        self._answer_lost = False
        self._dropped = 0
        self._waiting = 0
        self._done = 0
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def let_one(self, answer_lost: bool = False) -> None:
        """Let a write through; returns once the hub has answered it. Nobody hears the answer where that is lost."""
        with self._changed:
            done = self._done
            self._let, self._answer_lost = self._let + 1, answer_lost
            self._changed.notify_all()
        self._wait(lambda: self._done > done, "no write came")

    def wait_held(self, count: int) -> None:
        """Return when so many writes wait here."""
        self._wait(lambda: self._waiting >= count, "too few writes came")

    def drop_held(self) -> None:
        """Hang up on who waits here: their writes are on no way to the hub any more."""
        with self._changed:
            self._dropped += 1
            self._changed.notify_all()

    def open(self) -> None:
        """Hold nothing back any more."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self) -> None:
        """Everything that is under way ends with it."""
        self.open()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def pass_write(self) -> bool | None:
        """Wait for one's turn; whether the answer is to be lost. None: the write itself is."""
        with self._changed:
            dropped = self._dropped
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open or self._let > 0 or self._dropped > dropped)
            self._waiting -= 1
            if self._dropped > dropped:
                return None
            self._let = max(self._let - 1, 0)
            lost, self._answer_lost = self._answer_lost, False
            return lost

    def on_written(self) -> None:
        """The hub has answered a write."""
        with self._changed:
            self._done += 1
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S), what

    def handle_error(self, request: object, client_address: object) -> None:
        """Who was killed does not read the answer."""


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gate

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        held = self.path.endswith(HELD)
        lost = self.server.pass_write() if held else False
        if lost is None:
            self.close_connection = True
            return
        headers = {name: self.headers[name] for name in FORWARDED if name in self.headers}
        hub = HTTPConnection("127.0.0.1", self.server.port)
        try:
            hub.request(self.command, self.path, body or None, headers)
            answer = hub.getresponse()
            content = answer.read()
        except (OSError, HTTPException):
            self.close_connection = True                # as the hub itself would seem to do
            return
        finally:
            hub.close()
        if held:
            self.server.on_written()
        if lost:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"] or "")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
