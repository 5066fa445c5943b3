"""Publishing over HTTP, with wrk on the second core: each answer leaves after the `fdatasync` of its flush.

    python -m bench.http_posts [--seconds 5] [--rounds 3] [--connections 64]

Single messages of 100 bytes, the same with a login by password on every request (against a hub that lets nobody else
in), and JSON bodies of a hundred messages. wrk keeps one request in flight on each connection.
"""
from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.guard import PASSWORD, USER, start_guarded
from bench.servers import Server, start_hub, work_folder

VALUE: Final = "x" * 100
BATCH: Final = 100
RATE: Final = re.compile(r"Requests/sec:\s+([\d.]+)")
LATENCY: Final = re.compile(r"(50|99)%\s+([\d.]+)(us|ms|s)")
MS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0}
SCRIPT: Final = """wrk.method = "POST"
wrk.path = "{path}"
wrk.body = [==[{body}]==]
wrk.headers["Content-Type"] = "{content_type}"
{more}
"""


class Load(NamedTuple):
    """What is posted; `messages` of it are in one request."""

    name: str
    path: str
    content_type: str
    body: str
    messages: int
    login: bool = False


MANY: Final = json.dumps({"messages": [{"key": f"line{n}", "value": VALUE} for n in range(BATCH)]})
LOADS: Final = (Load("one message", "/v1/publish/load/a", "text/plain", VALUE, 1),
                Load("one message, login by password", "/v1/publish/load/a", "text/plain", VALUE, 1, True),
                Load("a hundred messages", "/v1/topics/load/messages", "application/json", MANY, BATCH))


class Run(NamedTuple):
    """What wrk saw, and what the hub's processor did for each request."""

    requests_s: float
    p50_ms: float
    p99_ms: float
    processor_us: float


def post(server: Server, load: Load, folder: Path, seconds: int, connections: int) -> Run:
    """One run. Raises SystemExit where an answer was none of 2xx."""
    more = ""
    if load.login:
        more = f'wrk.headers["Authorization"] = "Basic {b64encode(f"{USER}:{PASSWORD}".encode()).decode()}"'
    text = SCRIPT.format(path=load.path, body=load.body, content_type=load.content_type, more=more)
    return run_wrk(server, load.name, text, folder, seconds, connections)


def run_wrk(server: Server, name: str, text: str, folder: Path, seconds: int, connections: int) -> Run:
    """wrk with a script. Raises SystemExit where an answer was none of 2xx."""
    script = folder / "requests.lua"
    script.write_text(text)
    before = server.cpu()
    said = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script),
         f"http://127.0.0.1:{server.ports['http']}"], capture_output=True, text=True, check=True).stdout
    used = server.cpu().since(before)
    rate = RATE.search(said)
    if rate is None or "Non-2xx" in said or "Socket errors" in said:
        raise SystemExit(f"{name}: wrk said {said}")
    latency = {percent: float(number) * MS[unit] for percent, number, unit in LATENCY.findall(said)}
    requests_s = float(rate.group(1))
    return Run(requests_s, latency["50"], latency["99"], (used.user_s + used.system_s) / (requests_s * seconds) * 1e6)


def wrk_options(description: str | None) -> argparse.Namespace:
    """How long, how often, and by how many connections. Raises SystemExit where there is no wrk."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    require_wrk()
    return options


def require_wrk() -> None:
    """Raises SystemExit where it is not installed."""
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: apt-get install wrk")


def main() -> None:
    options = wrk_options(__doc__)
    with work_folder() as folder:
        free, guarded = start_hub(folder / "free", doors=("http",)), start_guarded(folder / "guarded", 100)
        try:
            for load in LOADS:
                server = guarded if load.login else free
                runs = [post(server, load, folder, options.seconds, options.connections)
                        for _ in range(options.rounds)]
                tell(load, Run(*(median(column) for column in zip(*runs, strict=True))))
        finally:
            for server in (free, guarded):
                server.stop()


def tell(load: Load, run: Run) -> None:
    """One line of the table."""
    print(f"{load.name}: {run.requests_s:,.0f} requests/s, {run.requests_s * load.messages:,.0f} messages/s, "
          f"p50 {run.p50_ms:.2f} ms, p99 {run.p99_ms:.2f} ms, {run.processor_us:.1f} µs of the hub each", flush=True)


if __name__ == "__main__":
    main()
