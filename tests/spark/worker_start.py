"""The start of a Python process of Spark's: it calls back first and loads pyspark then.

Spark gives up a process that has not called back ten seconds after it was started. A stream's processes do that once
they have loaded pyspark, and are not started again: on a busy machine a stream would end with nothing wrong with it.

    worker_start.py -m MODULE ...     what Spark runs, by way of `worker_python`
"""
from __future__ import annotations

import os
import socket
import sys

RUN = """
import runpy, socket, sys
import pyspark.worker_util
line = socket.socket(fileno=int(sys.argv.pop(1)))
module = sys.argv.pop(1)
pyspark.worker_util.local_connect_and_auth = lambda *_: (line.makefile("rwb", 65536), line)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
ANSWER = b"\0\0\0\2ok"


def call_back(port: int, secret: bytes) -> int:
    """The descriptor of a connection on which Spark knows who we are (SocketAuthHelper)."""
    line = socket.create_connection(("127.0.0.1", port))
    line.sendall(len(secret).to_bytes(4, "big") + secret)
    answer = b""
    while len(answer) < len(ANSWER):
        answer += line.recv(len(ANSWER) - len(answer)) or sys.exit("Spark hung up")
    assert answer == ANSWER
    line.set_inheritable(True)
    return line.detach()


def main(words: list[str]) -> None:
    port = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if port is not None:                # else it is told where to call by other means, and has the time
        secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
        words = ["-c", RUN, str(call_back(int(port), secret)), *words[1:]]
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    main(sys.argv[1:])
