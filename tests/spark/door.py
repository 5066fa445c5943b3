"""Plain requests to a hub's HTTP door, for tests that write and look."""
from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


class HttpDoor:
    """Answers as (status, JSON)."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """A body that is no bytes is sent as JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if isinstance(body, bytes) or body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, content, {**kind, **headers}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def delete_topics(self) -> None:
        """With everything in them."""
        for topic in self.ask("GET", "/v1/topics")[1]["topics"]:
            assert self.ask("DELETE", f"/v1/topics/{topic['name']}")[0] == 204

    def publish(self, topic: str, count: int, first: int = 0, **properties: Any) -> None:
        """`count` messages whose values are numbers from `first` on, in batches; keys are `k<number>`."""
        for start in range(first, first + count, 1000):
            numbers = range(start, min(start + 1000, first + count))
            messages = [{"key": f"k{number}", "value": str(number), **properties} for number in numbers]
            status, answer = self.ask("POST", f"/v1/topics/{topic}/messages", {"messages": messages})
            assert status == 201, answer

    def bounds(self, topic: str) -> list[tuple[int, int]]:
        """(first, next) offset of every partition."""
        _, answer = self.ask("GET", f"/v1/topics/{topic}")
        return [(one["log_start_offset"], one["high_watermark"]) for one in answer["bounds"]]

    def values(self, topic: str) -> list[int]:
        """All values of a topic, as numbers, in no order."""
        found: list[int] = []
        path = f"/v1/topics/{topic}/messages?max=1000"
        while True:
            status, page = self.ask("GET", path)
            assert status == 200, page
            if not page["messages"]:
                return found
            found += [int(message["value"]) for message in page["messages"]]
            path = f"/v1/topics/{topic}/messages?max=1000&cursor={page['cursor']}"
