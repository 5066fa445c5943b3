"""Debian's rabbitmq-server in a folder of its own: own ports, own Erlang port mapper, loopback only, no service.

Its port mapper (epmd) would outlive it as a daemon; ours is a child that ends with it.
"""
from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.servers import Server, ServerFailed, free_ports, wait_for_port

PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")     # /usr/sbin's wrapper insists on the service's user
START_S: Final = 120.0

CONFIG: Final = """\
listeners.tcp.1 = 127.0.0.1:{port}
log.console = false
log.file.level = error
vm_memory_high_watermark.relative = 0.6
disk_free_limit.absolute = 50MB
"""

MANAGEMENT: Final = """\
management.tcp.ip = 127.0.0.1
management.tcp.port = {port}
"""


class RabbitServer(Server):
    """RabbitMQ and its port mapper."""

    mapper: subprocess.Popen[bytes]

    def stop(self) -> None:
        super().stop()
        self.mapper.terminate()
        self.mapper.wait()


def start_rabbitmq(folder: Path, plugins: tuple[str, ...] = ()) -> RabbitServer:
    """With these plugins; `rabbitmq_management` listens on the port `management`. Raises ServerFailed where it is not
    installed or does not start."""
    epmd = shutil.which("epmd")
    if epmd is None or not PROGRAM.exists():
        raise ServerFailed("RabbitMQ is not installed: on Debian, apt-get install rabbitmq-server")
    folder.mkdir(exist_ok=True)
    port, dist_port, epmd_port, management = free_ports(4)
    (folder / "rabbitmq.conf").write_text(CONFIG.format(port=port) + (
        MANAGEMENT.format(port=management) if "rabbitmq_management" in plugins else ""))
    (folder / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
    environment = {
        **os.environ, "HOME": str(folder), "ERL_EPMD_PORT": str(epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost", "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"), "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"), "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false",
        "RUNNING_UNDER_SYSTEMD": "1",          # stays in the foreground as one process, without a shell on its input
    }
    mapper = subprocess.Popen([epmd, "-port", str(epmd_port), "-address", "127.0.0.1"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(epmd_port, mapper, "epmd", 10)
        with (folder / "rabbitmq.log").open("ab") as log:
            child = subprocess.Popen([str(PROGRAM)], env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log)
        wait_for_port(port, child, "RabbitMQ", START_S)
    except ServerFailed:
        mapper.terminate()
        mapper.wait()
        raise
    server = RabbitServer("RabbitMQ", child, folder, {"amqp": port, "management": management})
    server.mapper = mapper
    return server
