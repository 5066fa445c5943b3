"""Tells systemd how the hub is, where it was started by a unit with `Type=notify` (see sd_notify(3)).

    READY=1 RELOADING=1 STOPPING=1     what the hub is about; a reload ends with READY=1, whatever came of it
    WATCHDOG=1                         the event loop turns; twice in the time that `WatchdogSec` allows
"""
from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send a line to whoever wants to know; does nothing where nobody does. Never fails: it is only news."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


def reload_begins() -> str:
    """That a reload begins; systemd 253 wants to know when, to tell it from the one before."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def watchdog_s(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds between two signs of life; 0 where none are asked for of this process."""
    text = environ.get("WATCHDOG_USEC", "")
    ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(text) / 2_000_000 if ours and text.isascii() and text.isdigit() else 0.0


class Watchdog:
    """Signs of life for as long as the loop turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float) -> None:
        self._loop = loop
        self._every_s = every_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Give the first one now; none are given where `every_s` is 0."""
        if self._every_s:
            notify("WATCHDOG=1")
            self._timer = self._loop.call_later(self._every_s, self.start)

    def stop(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()
