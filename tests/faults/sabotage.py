"""What is done to a hub from inside, before it serves. Runs in the hub's process; nothing of it is in the product.

    die         {"at": "kernel.index.index:Index.write", "call": 3, "side": "before"}: SIGKILL at a call of a function,
                or at a write or sync of the log, whoever does it: {"at": "disk:write", ...}, {"at": "disk:sync", ...}
    tear        {"call": 100, "keep": 0.5}: write a part of a frame, then SIGKILL
    fail_sync   PATH: fdatasync fails while the file is there
    hold_sync   PATH: fdatasync does not return while the file is there, and says `held` in it when it waits
    hold_index  PATH: no file of the index can be written while the file is there, and it says `held` then
    full        {"call": 100, "calls": 5}: the disk is full from one write to the log on, for some of them
    clock       [[0.5, -3600], [1.0, 0]]: seconds after the start, and how far the wall clock is off from then on
    retention   seconds between two looks of retention, which are ten
    read_backups PATH: while the file is there, every backup counts as read; after it, as not for a minute
"""
from __future__ import annotations

import functools
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.faults import faulty_disk

DISK: Final = {"disk:write": "die_at_write", "disk:sync": "die_at_sync"}


def apply(orders: dict[str, Any]) -> None:
    """Do what is ordered to this process."""
    for name, order in orders.items():
        ORDERS[name](order)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die(order: dict[str, Any]) -> None:
    if order["at"] in DISK:
        faulty_disk.order(DISK[order["at"]], order["call"], int(order["side"] == "after"))
        return
    module, _, path = order["at"].partition(":")
    holder: Any = importlib.import_module(f"gatehouse.{module}")
    *names, last = path.split(".")
    for name in names:
        holder = getattr(holder, name)
    original = getattr(holder, last)
    calls = 0

    @functools.wraps(original)
    def deadly(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        now = calls == order["call"]
        if now and order["side"] == "before":
            _die()
        result = original(*arguments, **named)
        if now:
            _die()
        return result

    setattr(holder, last, deadly)


def tear(order: dict[str, Any]) -> None:
    faulty_disk.order("tear", order["call"], float(order["keep"]))


def fail_sync(path: str) -> None:
    faulty_disk.order("fail_syncs", path)


def hold_sync(path: str) -> None:
    faulty_disk.order("hold_syncs", path)


def hold_index(path: str) -> None:
    faulty_disk.order("hold_index", path)


def full(order: dict[str, Any]) -> None:
    faulty_disk.order("be_full", order["call"], order["calls"])


def clock(steps: list[list[float]]) -> None:
    read, read_ns = time.time, time.time_ns
    off_s = 0.0

    def step() -> None:
        nonlocal off_s
        began_s = time.monotonic()
        for after_s, by_s in steps:
            time.sleep(max(0.0, began_s + after_s - time.monotonic()))
            off_s = by_s

    time.time = lambda: read() + off_s
    time.time_ns = lambda: read_ns() + int(off_s * 1_000_000_000)
    threading.Thread(target=step, daemon=True).start()


def retention(seconds: float) -> None:
    import gatehouse.kernel.retention.retention

    gatehouse.kernel.retention.retention.CHECK_MS = int(seconds * 1000)  # type: ignore[misc]


def read_backups(path: str) -> None:
    import gatehouse.kernel.backup.backups

    gatehouse.kernel.backup.backups.IDLE_MS = 100  # type: ignore[misc]
    look, sign = gatehouse.kernel.backup.backups.Backups._look, Path(path)

    def looked(backups: gatehouse.kernel.backup.backups.Backups,
               backup: gatehouse.kernel.backup.backups.Backup) -> None:
        if sign.exists():
            backups.note_reader(backup)
        look(backups, backup)

    gatehouse.kernel.backup.backups.Backups._look = looked  # type: ignore[method-assign]


ORDERS: dict[str, Callable[[Any], None]] = {
    "die": die, "tear": tear, "full": full, "clock": clock,
    "fail_sync": fail_sync, "hold_sync": hold_sync, "hold_index": hold_index,
    "retention": retention, "read_backups": read_backups}
