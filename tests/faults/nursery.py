"""Starts hubs quickly: a process that has loaded everything once and forks for each hub, which then runs the command
line.

    nursery = Nursery()
    hub = nursery.start(folder, config, orders)       # see `sabotage` for orders
    hub.wait_ready(); hub.port("mqtt"); hub.kill(); hub.stop()

A hub is a process of its own with its own descriptors, limits, environment and end; only loading the modules is saved,
which is most of a start. `shared_nursery` is the one that all tests of a test process use.
"""
from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from tests.faults import faulty_disk

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 60
MESSAGE_BYTES: Final = 1 << 17


def whole_lines(data: bytes) -> str:
    """A log that somebody writes to, without what has come of a line so far."""
    return data[:data.rfind(b"\n") + 1].decode()


class ForkedProcess:
    """A process of the nursery, with the part of `subprocess.Popen` that tests use, also of several threads."""

    def __init__(self, nursery: Nursery, pid: int, output: IO[str]) -> None:
        self.pid = pid
        self.stdout = output
        self.returncode: int | None = None
        self._nursery = nursery
        self._ended = os.pidfd_open(pid)
        self._reaping = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._code_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended. Raises TimeoutExpired."""
        code = self._code_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _code_within(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and self._ends_within(timeout_s):
            with self._reaping:
                if self.returncode is None:
                    self.returncode = int(self._nursery.ask({"reap": self.pid})["code"])
                    os.close(self._ended)
        return self.returncode

    def _ends_within(self, timeout_s: float | None) -> bool:
        """Unlike `select.select`, `poll` takes descriptors above 1,023 as well."""
        end = select.poll()
        end.register(self._ended, select.POLLIN)
        return bool(end.poll(None if timeout_s is None else timeout_s * 1000))


class ForkedHub:
    """A hub that was started. `log` is its standard error so far."""

    def __init__(self, process: ForkedProcess, log_file: Path, log_start: int) -> None:
        self.pid = process.pid
        self.lines: list[str] = []
        self._process = process
        self._log_file = log_file
        self._log_start = log_start                  # bytes that were there before it

    def wait_ready(self) -> bool:
        """True once it says that it is ready, False where it ends instead."""
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line == "gatehouse ready\n":
                return True
        return False

    def port(self, door: str) -> int:
        line = next(line for line in self.lines if line.startswith(f"{door} listens on "))
        return int(line.rpartition(":")[2])

    @property
    def log(self) -> str:
        """Its standard error so far, in whole lines."""
        return whole_lines(self._log_file.read_bytes()[self._log_start:])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_log(self, word: str, deadline_s: float = DEADLINE_S) -> str:
        """The first line of its log with this word, once it is there."""
        end_s = time.monotonic() + deadline_s
        while time.monotonic() < end_s:
            found = [line for line in self.log.splitlines() if word in line]
            if found:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"{word!r} is not in the log: {self.log}")

    def wait_ended(self, deadline_s: float = DEADLINE_S) -> int:
        """The exit code, negative for a signal."""
        code = self._process.wait(deadline_s)
        self._process.stdout.close()
        return code

    def stop(self, number: int = signal.SIGTERM, deadline_s: float = DEADLINE_S) -> int:
        self._process.send_signal(number)
        return self.wait_ended(deadline_s)

    def kill(self) -> None:
        """End it whatever it is doing; nothing to do where it has ended."""
        self._process.kill()
        self.wait_ended()


class Nursery:
    """The process that hubs are forked from. `close` ends it and every hub that still runs."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.nursery", str(theirs.fileno())],
                                         cwd=ROOT, pass_fds=[theirs.fileno()],
                                         env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **faulty_disk.environ()})
        theirs.close()
        self._line = threading.Lock()
        self._started: list[ForkedProcess] = []

    def start(self, folder: Path, config: str, orders: dict[str, Any] | None = None) -> ForkedHub:
        """A hub on the data in `folder`; its log goes to `hub.log` there."""
        (folder / "gateways.toml").write_text(config)
        with (folder / "hub.log").open("a") as log:
            log_start = log.tell()
            process = self.fork(["serve", "--config", str(folder / "gateways.toml")], log, orders)
        return ForkedHub(process, folder / "hub.log", log_start)

    def fork(self, arguments: list[str], log: IO[Any], orders: dict[str, Any] | None = None,
             environ: dict[str, str] | None = None, stdin: IO[Any] | None = None) -> ForkedProcess:
        """A process that runs the command line; `log` is its standard error."""
        reading, writing = os.pipe()
        order = {"start": arguments, "orders": orders or {}, "environ": {**os.environ, **(environ or {})}}
        answer = self.ask(order, [writing, log.fileno(), *([stdin.fileno()] if stdin else [])])
        os.close(writing)
        process = ForkedProcess(self, answer["pid"], os.fdopen(reading))
        self._started = [one for one in self._started if one.poll() is None] + [process]
        return process

    def ask(self, order: dict[str, Any], descriptors: list[int] | None = None) -> dict[str, Any]:
        with self._line:
            socket.send_fds(self._socket, [json.dumps(order).encode()], descriptors or [])
            answer: dict[str, Any] = json.loads(self._socket.recv(MESSAGE_BYTES))
        return answer

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait(DEADLINE_S)
        self._socket.close()
        self._process.wait(DEADLINE_S)


@cache
def shared_nursery() -> Nursery:
    """The nursery of this process, started when it is first wanted."""
    nursery = Nursery()
    atexit.register(nursery.close)
    return nursery


# ---- the other side

def _serve(line: socket.socket) -> None:
    """Fork hubs and reap them until the other side is gone."""
    import alembic.command  # noqa: F401

    import gatehouse.cli.main  # noqa: F401
    import gatehouse.kernel.state.catalogue  # noqa: F401
    from gatehouse.serve import read_specs

    read_specs()
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 3)
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


def _become_hub(order: dict[str, Any], output: int, log: int, stdin: int | None = None) -> None:
    """Run the command line as if it had just been started. Does not return."""
    from gatehouse.cli.main import main
    from tests.faults import sabotage

    if stdin is not None:
        os.dup2(stdin, 0)
        os.close(stdin)
    os.dup2(output, 1)
    os.dup2(log, 2)
    os.close(output)
    os.close(log)
    code = 1
    os.environ.clear()
    os.environ.update(order["environ"])
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
