"""Which call a method and a raw path name: a tree of path segments, walked without decoding anything.

    /v1/publish/{address...}       the rest of the path, slashes and all
    /v1/topics/{topic}/messages    one segment
    /healthz                       itself

A literal segment wins over a capture. Captures are handed out raw: decoding is the call's business, because only it
knows whether a `%2F` may stand there. Pure.
"""
from __future__ import annotations

from typing import Generic, TypeVar

Handler = TypeVar("Handler")


class Endpoint(Generic[Handler]):
    """One path with the handler of each of its methods."""

    __slots__ = ("pattern", "handlers")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.handlers: dict[str, Handler] = {}

    def handler(self, method: str) -> Handler | None:
        """The method's handler; HEAD is answered by GET's, whose body the server leaves out."""
        return self.handlers.get("GET" if method == "HEAD" else method)

    def allow(self) -> str:
        """The value of the `Allow` header."""
        methods = set(self.handlers)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods))


class _Node(Generic[Handler]):
    __slots__ = ("literals", "capture", "rest", "endpoint")

    def __init__(self) -> None:
        self.literals: dict[str, _Node[Handler]] = {}
        self.capture: _Node[Handler] | None = None
        self.rest: Endpoint[Handler] | None = None
        self.endpoint: Endpoint[Handler] | None = None


class RouteTable(Generic[Handler]):
    """Every path of the door."""

    def __init__(self) -> None:
        self._root: _Node[Handler] = _Node()
        self.endpoints: list[Endpoint[Handler]] = []

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        """Declare one call. A pattern and method may be declared once."""
        node = self._root
        segments = pattern.removeprefix("/").split("/")
        last = segments[-1]
        if last.endswith("...}"):
            segments.pop()
        for segment in segments:
            node = self._child(node, segment)
        endpoint = node.rest if last.endswith("...}") else node.endpoint
        if endpoint is None:
            endpoint = Endpoint(pattern)
            self.endpoints.append(endpoint)
            if last.endswith("...}"):
                node.rest = endpoint
            else:
                node.endpoint = endpoint
        if method in endpoint.handlers:
            raise ValueError(f"{method} {pattern} is declared twice")
        endpoint.handlers[method] = handler

    def find(self, raw_path: str) -> tuple[Endpoint[Handler], tuple[str, ...]] | None:
        """The endpoint of a raw path and its raw captures in order, or None."""
        if not raw_path.startswith("/"):
            return None
        segments = raw_path[1:].split("/")
        node = self._root
        captures: list[str] = []
        for at, segment in enumerate(segments):
            if node.rest is not None:
                captures.append("/".join(segments[at:]))
                return node.rest, tuple(captures)
            literal = node.literals.get(segment)
            if literal is not None:
                node = literal
            elif node.capture is not None and segment:
                captures.append(segment)
                node = node.capture
            else:
                return None
        return (node.endpoint, tuple(captures)) if node.endpoint is not None else None

    @staticmethod
    def _child(node: _Node[Handler], segment: str) -> _Node[Handler]:
        if not segment.startswith("{"):
            return node.literals.setdefault(segment, _Node())
        if node.capture is None:
            node.capture = _Node()
        return node.capture
