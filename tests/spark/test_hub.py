"""Requests to the hub: retried, refused in its words, with credentials, over TLS."""
from __future__ import annotations

import json
import pickle
import ssl
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gatehouse.spark.errors import HubRefused, HubUnreachable, InvalidOption
from gatehouse.spark.hub import Hub, HubAddress


class Scripted(HTTPServer):
    """Answers requests in turn by what is in `script`: (status, body), or None to hang up."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.script: list[tuple[int, bytes] | None] = []
        self.seen: list[tuple[str, dict[str, str], bytes]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust us hangs up."""


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.path, dict(self.headers), body))
        answer = self.server.script.pop(0)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer[0])
        self.send_header("Content-Length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    running = Scripted()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def hub_of(server: Scripted, scheme: str = "http", **options: Any) -> Hub:
    return Hub(HubAddress(f"{scheme}://127.0.0.1:{server.server_port}", **options))


def problem(code: str) -> bytes:
    return json.dumps({"code": code, "detail": "because"}).encode()


def test_what_can_be_tried_again_is(server: Scripted) -> None:
    server.script = [(503, problem("busy")), None, (504, problem("outcome_unknown")), (429, problem("over_quota")),
                     (200, b"yes")]
    hub = hub_of(server)
    assert hub.post_json("/x", {"a": 1}) == b"yes"
    assert [body for _, _, body in server.seen] == [b'{"a":1}'] * 5
    assert hub.received_bytes > 3
    hub.close()


def test_refusals_are_the_hubs_words_and_can_be_pickled(server: Scripted) -> None:
    server.script = [(404, problem("unknown_topic")), (500, b"<html>")]
    hub = hub_of(server)
    with pytest.raises(HubRefused, match="404 unknown_topic.*because") as raised:
        hub.post_json("/x", {})
    assert pickle.loads(pickle.dumps(raised.value)).code == "unknown_topic"
    with pytest.raises(HubRefused, match="500 unknown"):
        hub.post_json("/x", {})
    hub.close()


def test_a_hub_that_stays_away_is_given_up(server: Scripted) -> None:
    server.script = [None] * 50
    hub = hub_of(server, retry_s=0.2)
    with pytest.raises(HubUnreachable, match="does not answer POST /x"):
        hub.post_json("/x", {})


def test_credentials(server: Scripted) -> None:
    server.script = [(200, b"")] * 3
    for options in ({"user": "u", "password": "päss"}, {"token": "t"}, {}):
        hub = hub_of(server, **options)
        hub.post_json("/x", {})
        hub.close()
    basic, bearer, nothing = (headers.get("Authorization") for _, headers, _ in server.seen)
    assert b64decode((basic or "").removeprefix("Basic ")).decode() == "u:päss"
    assert (bearer, nothing) == ("Bearer t", None)
    assert "päss" not in repr(HubAddress("http://x", "u", "päss", "t"))


@pytest.mark.parametrize("url", ["hub:8080", "ftp://hub", "http://", ""])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InvalidOption, match="'url' is the hub's HTTP door"):
        Hub(HubAddress(url))


def test_tls_trusts_the_files_that_are_given(server: Scripted, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "1", "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key),
                    "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.script = [(200, b"trusted"), (200, b"anybody")]
    with pytest.raises(HubUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        hub_of(server, "https", retry_s=0).post_json("/x", {})
    for options, said in (({"tls_ca": str(certificate)}, b"trusted"), ({"tls_verify": False}, b"anybody")):
        hub = hub_of(server, "https", **options)
        assert hub.post_json("/x", {}) == said
        hub.close()
    with pytest.raises(InvalidOption, match="TLS file cannot be read"):
        hub_of(server, "https", tls_ca=str(tmp_path / "none.pem"))
