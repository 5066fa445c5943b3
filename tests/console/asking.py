"""Asking a hub over HTTP beside the browser."""
from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

from tests.running_hub import RunningHub


def ask(hub: RunningHub, method: str, path: str, body: Any = None, user: tuple[str, str] | None = None) -> Any:
    """The JSON answer; a `body` of bytes is sent as it is. Raises urllib.error.HTTPError where the hub refuses."""
    headers = {"Content-Type": "application/octet-stream" if isinstance(body, bytes) else "application/json"}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{hub.port('http')}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def publish(hub: RunningHub, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Store messages; what is told of each."""
    stored: list[dict[str, Any]] = ask(hub, "POST", "/v1/publish", {"messages": messages})["messages"]
    return stored


def group_path(group: str) -> str:
    """Whatever is in its name."""
    return "/v1/groups/" + "".join(f"%{byte:02X}" for byte in group.encode())


def bury(hub: RunningHub, group: str, topic: str, count: int) -> list[dict[str, Any]]:
    """Make this many messages of a topic dead letters of the group; the messages."""
    buried: list[dict[str, Any]] = []
    while len(buried) < count:
        path = f"{group_path(group)}/pop?topic={topic}&wait=5&max={count - len(buried)}"
        popped = ask(hub, "POST", path)["messages"]
        ask(hub, "POST", f"{group_path(group)}/release", {
            "receipt_handles": [message["receipt_handle"] for message in popped], "dead_letter": True})
        buried += popped
    return buried
