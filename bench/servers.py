"""The servers that are compared: started in folders of their own, asked for their processor time, ended by process id.

    hub         this repository's hub, by its own configuration file
    mosquitto   Debian's, with limits off that would make it drop messages
    Apache Kafka is in `apache_kafka`

Ports are free ones, asked of the system; loopback only.
"""
from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
START_S: Final = 600.0           # a hub that replays 10 GB takes a while
STOP_S: Final = 60.0
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
DOORS: Final = ("mqtt", "http", "kafka")

# Without `set_tcp_nodelay`, which halves its pipes: it writes every packet by itself.
MOSQUITTO: Final = """\
listener {port} 127.0.0.1
{who}
max_inflight_messages 0
max_queued_messages 0
persistence false
log_type error
"""


class Cpu(NamedTuple):
    """Processor time of a process, all its threads."""

    user_s: float
    system_s: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(self.user_s - before.user_s, self.system_s - before.system_s)


class ServerFailed(Exception):
    """A server did not start, or is not installed; the text says what to do."""


class Server:
    """A running server and where it listens."""

    def __init__(self, name: str, child: subprocess.Popen[bytes], folder: Path, ports: Mapping[str, int]) -> None:
        self.name = name
        self.child = child
        self.folder = folder
        self.ports = ports

    @property
    def pid(self) -> int:
        return self.child.pid

    def cpu(self) -> Cpu:
        """Read from /proc: the name in it may hold spaces, so fields count from its closing parenthesis."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return Cpu(int(fields[11]) * TICK_S, int(fields[12]) * TICK_S)

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def kill(self) -> None:
        """As a power cut would, but for what the system still writes."""
        self.child.kill()
        self.child.wait()

    def stop(self) -> None:
        """Ask it to end, then make it."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def work_folder(within: Path | None = None) -> Iterator[Path]:
    """A folder on the disk of the repository, or `within` another one, gone afterwards: some systems keep /tmp in
    memory."""
    (ROOT / "build").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=within or ROOT / "build"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forget_cached(folder: Path) -> None:
    """Put the files out of the page cache; what is not on disk yet stays."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def wait_for_port(port: int, child: subprocess.Popen[bytes], name: str, limit_s: float) -> None:
    """Until the server takes connections. Raises ServerFailed when it ends or takes too long."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if child.poll() is not None:
            raise ServerFailed(f"{name} ended with exit code {child.returncode} instead of listening")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)    # not listening yet
    raise ServerFailed(f"{name} does not listen after {limit_s:.0f} s")


# ---- the hub --------------------------------------------------------------------------------------------------------

def start_hub(folder: Path, *, doors: tuple[str, ...] = DOORS, settings: Mapping[str, str] | None = None,
              tls: tuple[Path, Path] | None = None, more: str = "") -> Server:
    """Start this hub on `folder` (again, where it has run before), and wait for `gatehouse ready`.

    `settings` go to the environment: {"KERNEL__FSYNC": "never"}. With `tls`, files of a certificate and its key, every
    door has a second listener, under the name `DOOR-tls`. `more` is further text of its configuration. Raises
    ServerFailed.
    """
    folder.mkdir(exist_ok=True)
    names = [*doors, *(f"{door}-tls" for door in doors if tls)]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    lines = ["[hub]", f'data_dir = "{folder / "data"}"']
    for door in doors:
        listen = f'"127.0.0.1:{ports[door]}"'
        if tls is not None:
            port = ports[f"{door}-tls"]
            advertise = f'advertise = "127.0.0.1:{port}", ' if door == "kafka" else ""
            files = f'cert = "{tls[0]}", key = "{tls[1]}"'
            listen += f', {{ address = "127.0.0.1:{port}", {advertise}tls = {{ {files} }} }}'
        lines += [f"[gateways.{door}]", f"listen = [{listen}]"]
        if door == "kafka":
            lines.append(f'advertise = "127.0.0.1:{ports[door]}"')
    config = folder / "gateways.toml"
    config.write_text("\n".join(lines) + f"\n{more}\n")
    environment = {**os.environ, **{f"GATEHOUSE__{name}": value for name, value in (settings or {}).items()}}
    with (folder / "hub.log").open("ab") as log:
        child = subprocess.Popen([sys.executable, "-m", "gatehouse.cli", "serve", "--config", str(config)], cwd=ROOT,
                                 env=environment, stdout=subprocess.PIPE, stderr=log)
    assert child.stdout is not None
    with child.stdout as output:    # three lines and `ready` are all it ever says
        for line in output:
            if line == b"gatehouse ready\n":
                return Server("hub", child, folder, ports)
    child.wait()
    said = (folder / "hub.log").read_text(errors="replace").splitlines()[-1:]
    raise ServerFailed(f"the hub did not start (exit code {child.returncode}): {' '.join(said)}")


# ---- mosquitto ------------------------------------------------------------------------------------------------------

def start_mosquitto(folder: Path, passwords: Path | None = None) -> Server:
    """`passwords`: a file of `mosquitto_passwd`, one of which everybody has to show. Raises ServerFailed where it is
    not installed."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise ServerFailed("mosquitto is not installed: on Debian, apt-get install mosquitto")
    folder.mkdir(exist_ok=True)
    port, = free_ports(1)
    config = folder / "mosquitto.conf"
    who = "allow_anonymous true"
    if passwords is not None:                        # where root starts it, it would give up the right to read the file
        who = f"user root\nallow_anonymous false\npassword_file {passwords}"
    config.write_text(MOSQUITTO.format(port=port, who=who))
    with (folder / "mosquitto.log").open("ab") as log:
        child = subprocess.Popen([program, "-c", str(config)], stdout=log, stderr=log)
    wait_for_port(port, child, "mosquitto", 10)
    return Server("mosquitto", child, folder, {"mqtt": port})
