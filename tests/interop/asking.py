"""Asking a hub over HTTP as anybody's program does, with the standard library's client."""
from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from tests.running_hub import DEADLINE_S, RunningHub


def ask(hub: RunningHub, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of one request."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    if data is not body:
        headers["Content-Type"] = "application/json"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", data, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
