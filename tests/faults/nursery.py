"""Starts hubs quickly: a process that has loaded everything once and forks for each hub, which then runs the command
line.

    nursery = Nursery()
    hub = nursery.start(folder, config, orders)       # see `sabotage` for orders
    hub.wait_ready(); hub.port("mqtt"); hub.kill(); hub.stop()

A hub is a process of its own with its own descriptors, limits and end; only loading the modules is saved, which is most
of a start.
"""
from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 30
MESSAGE_BYTES: Final = 1 << 16


class ForkedHub:
    """A hub that was started. `log` is its standard error so far."""

    def __init__(self, nursery: Nursery, pid: int, output: IO[str], log_file: Path) -> None:
        self.pid = pid
        self.lines: list[str] = []
        self._nursery = nursery
        self._output = output
        self._log_file = log_file
        self._log_start = log_file.stat().st_size if log_file.exists() else 0
        self._ended = os.pidfd_open(pid)
        self._code: int | None = None

    def wait_ready(self) -> bool:
        """True once it says that it is ready, False where it ends instead."""
        for line in self._output:
            self.lines.append(line.rstrip("\n"))
            if line == "gatehouse ready\n":
                return True
        return False

    def port(self, door: str) -> int:
        line = next(line for line in self.lines if line.startswith(f"{door} listens on "))
        return int(line.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self._log_file.read_text()[self._log_start:]

    @property
    def alive(self) -> bool:
        return self._code is None and not select.select([self._ended], [], [], 0)[0]

    def wait_log(self, word: str, deadline_s: float = DEADLINE_S) -> str:
        """The first line of its log with this word, once it is there."""
        end_s = time.monotonic() + deadline_s
        while time.monotonic() < end_s:
            found = [line for line in self.log.splitlines() if word in line]
            if found:
                return found[0]
            select.select([self._ended], [], [], 0.02)
        raise AssertionError(f"{word!r} is not in the log: {self.log}")

    def wait_ended(self, deadline_s: float = DEADLINE_S) -> int:
        """The exit code, negative for a signal."""
        if self._code is None:
            assert select.select([self._ended], [], [], deadline_s)[0], f"the hub did not end: {self.log}"
            self._code = int(self._nursery.ask({"reap": self.pid})["code"])
            os.close(self._ended)
            self._output.close()
        return self._code

    def stop(self, number: int = signal.SIGTERM, deadline_s: float = DEADLINE_S) -> int:
        os.kill(self.pid, number)
        return self.wait_ended(deadline_s)

    def kill(self) -> None:
        """End it whatever it is doing; nothing to do where it has ended."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait_ended()


class Nursery:
    """The process that hubs are forked from. `close` ends it and every hub that still runs."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.nursery", str(theirs.fileno())],
                                         cwd=ROOT, pass_fds=[theirs.fileno()],
                                         env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"})
        theirs.close()
        self._hubs: list[ForkedHub] = []

    def start(self, folder: Path, config: str, orders: dict[str, Any] | None = None) -> ForkedHub:
        """A hub on the data in `folder`; its log goes to `hub.log` there."""
        (folder / "gateways.toml").write_text(config)
        reading, writing = os.pipe()
        with (folder / "hub.log").open("a") as log:
            arguments = ["serve", "--config", str(folder / "gateways.toml")]
            answer = self.ask({"start": arguments, "orders": orders or {}}, [writing, log.fileno()])
        os.close(writing)
        hub = ForkedHub(self, answer["pid"], os.fdopen(reading), folder / "hub.log")
        self._hubs = [one for one in self._hubs if one.alive] + [hub]
        return hub

    def ask(self, order: dict[str, Any], descriptors: list[int] | None = None) -> dict[str, Any]:
        socket.send_fds(self._socket, [json.dumps(order).encode()], descriptors or [])
        answer: dict[str, Any] = json.loads(self._socket.recv(MESSAGE_BYTES))
        return answer

    def close(self) -> None:
        for hub in self._hubs:
            hub.kill()
        self._socket.close()
        self._process.wait(DEADLINE_S)


# ---- the other side

def _serve(line: socket.socket) -> None:
    """Fork hubs and reap them until the other side is gone."""
    import alembic.command  # noqa: F401

    import gatehouse.cli  # noqa: F401
    import kernel.catalogue  # noqa: F401
    from gatehouse.serve import read_specs

    read_specs()
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 2)
        if not data:
            return
        order = json.loads(data)
        if "reap" in order:
            status = os.waitpid(order["reap"], 0)[1]
            line.send(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
            continue
        pid = os.fork()
        if pid == 0:
            line.close()
            _become_hub(order, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        line.send(json.dumps({"pid": pid}).encode())


def _become_hub(order: dict[str, Any], output: int, log: int) -> None:
    """Run the command line as if it had just been started. Does not return."""
    from gatehouse.cli import main
    from tests.faults import sabotage

    os.dup2(output, 1)
    os.dup2(log, 2)
    os.close(output)
    os.close(log)
    code = 1
    try:
        sabotage.apply(order["orders"])
        sys.argv = ["gatehouse", *order["start"]]
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
