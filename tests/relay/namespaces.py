"""Two private networks that reach a meeting point and nothing else: namespaces of Linux, made and removed by root.

    gh-a-PID  hub A ── 10.99.1.2 ─ gh-w-PID ─ 10.99.1.1 ┐
                                                        ├ gh-m-PID  meeting point on 10.99.0.1, HTTP proxy on 10.99.2.1
    gh-b-PID  hub B ── 10.99.2.2 ──────────── 10.99.2.1 ┘

Nothing is forwarded between the two. A has a route to the meeting point, by a wire that delays, loses and doubles
frames (`bad_wire`). B has none: its hub goes by the proxy.
"""
from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from tests.running_hub import ROOT

MEETING = "10.99.0.1"
PROXY = "10.99.2.1"
DEADLINE_S = 30


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=DEADLINE_S)


class Namespaces:
    """See the file's text."""

    kind = "network namespaces"

    def __init__(self) -> None:
        self.names = {side: f"gh-{side}-{os.getpid()}" for side in "amwb"}
        self.meeting, self.proxy = MEETING, PROXY
        self._wire: subprocess.Popen[str] | None = None
        self._wires = {side: (f"gh{side}{os.getpid()}i"[:15], f"gh{side}{os.getpid()}o"[:15]) for side in "ab"}

    def make(self) -> None:
        """Raises CalledProcessError, FileNotFoundError where that cannot be."""
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.names["m"], "addr", "add", f"{MEETING}/32", "dev", "lo")
        for number, side in ((1, "a"), (2, "b")):
            inner, outer = self._wires[side]
            if side == "a":
                self._by_the_wire(inner, outer)
            else:
                self._pair(inner, side, outer, "m")
            for at, (name, wire) in enumerate(((self.names["m"], outer), (self.names[side], inner)), 1):
                ip("-n", name, "addr", "add", f"10.99.{number}.{at}/24", "dev", wire)
                ip("-n", name, "link", "set", wire, "up")
        ip("-n", self.names["a"], "route", "add", f"{MEETING}/32", "via", "10.99.1.1")

    def _pair(self, one: str, of: str, other: str, there: str) -> None:
        ip("link", "add", one, "netns", self.names[of], "type", "veth", "peer", "name", other, "netns",
           self.names[there])

    def _by_the_wire(self, inner: str, outer: str) -> None:
        ends = f"ghw{os.getpid()}i"[:15], f"ghw{os.getpid()}o"[:15]
        self._pair(inner, "a", ends[0], "w")
        self._pair(outer, "m", ends[1], "w")
        module = (sys.executable, "-m", "tests.relay.bad_wire")
        for side, device in (("a", inner), ("m", outer)):
            subprocess.run([*self.inside(side), *module, device], check=True, timeout=DEADLINE_S, cwd=ROOT)
        for end in ends:
            ip("-n", self.names["w"], "link", "set", end, "up")
        self._wire = subprocess.Popen([*self.inside("w"), *module, *ends], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline() == "ready\n"

    def remove(self) -> None:
        if self._wire is not None:
            self._wire.kill()
            self._wire.wait(DEADLINE_S)
            assert self._wire.stdout is not None
            self._wire.stdout.close()
        for name in self.names.values():
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)

    def inside(self, side: str) -> tuple[str, ...]:
        """What a command begins with to run there."""
        return "ip", "netns", "exec", self.names[side]

    def cut(self, side: str) -> None:
        """Pull the plug of a network."""
        ip("-n", self.names[side], "link", "set", self._wires[side][0], "down")

    def mend(self, side: str) -> None:
        ip("-n", self.names[side], "link", "set", self._wires[side][0], "up")
        if side == "a":
            ip("-n", self.names["a"], "route", "replace", f"{MEETING}/32", "via", "10.99.1.1")

    def reaches(self, side: str, address: str, port: int) -> bool:
        """Whether a connection can be made from there."""
        probe = f"import socket; socket.create_connection(({address!r}, {port}), 2)"
        return subprocess.run([*self.inside(side), "python3", "-c", probe], capture_output=True,
                              timeout=DEADLINE_S).returncode == 0


def namespaces() -> Namespaces | None:
    """Where this machine can have them: root that can make one must. GATEHOUSE_NAMESPACES=needed: everybody."""
    if os.geteuid() == 0:
        made = Namespaces()
        try:
            made.make()
            return made
        except (subprocess.CalledProcessError, FileNotFoundError):
            made.remove()
    needed = os.environ.get("GATEHOUSE_NAMESPACES") == "needed" or os.geteuid() == 0 and subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, timeout=DEADLINE_S).returncode == 0
    assert not needed, "network namespaces are needed and cannot be made here: see iproute2"
    return None
