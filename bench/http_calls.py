"""What a request over HTTP costs by how many connections bring it and by what it asks, with wrk on the second core.

    python -m bench.http_calls [--seconds 3] [--rounds 3] [--connections 1 16 64 256 1000]

First posts of one message of 100 bytes, each answered after `fdatasync`, one in flight on each connection. Then, over
64 connections, the same with a connection for each request; a GET of a page with one message and with 20: the first of
the log again and again, one of the newest 10,000 messages, and any; pop and ack by turns, one message each, both after
`fdatasync`.
"""
from __future__ import annotations

import argparse
import json
import urllib.request
from statistics import median
from typing import Final, NamedTuple

from bench.http_posts import SCRIPT, VALUE, Run, require_wrk, run_wrk
from bench.measure import table
from bench.servers import Server, start_hub, work_folder

BESIDE: Final = 64
FEW: Final = (1, 16, 64, 256, 1_000)
POST: Final = {"path": "/v1/publish/load/a", "content_type": "text/plain", "body": VALUE}

NEWEST: Final = 10_000

PAGE: Final = """wrk.method = "GET"
wrk.path = "/v1/topics/load/messages?partition=0&from=0&max={count}"
"""

PAGE_FROM: Final = """function request()
  return wrk.format("GET", "/v1/topics/load/messages?partition=0&max={count}&from=" .. math.random({first}, {last}))
end
"""

# What was popped is acked by whichever connection is free next.
POP_AND_ACK: Final = """local held, first, last = {}, 1, 0
local pop
function init(args)
  pop = wrk.format("POST", "/v1/groups/load/pop?topic=load&max=1&invisible=60", {}, "")
end
function request()
  if first > last then return pop end
  local handle = held[first]
  held[first] = nil
  first = first + 1
  return wrk.format("POST", "/v1/groups/load/ack", {["Content-Type"] = "application/json"},
                    '{"receipt_handles": ["' .. handle .. '"]}')
end
function response(status, headers, body)
  local handle = body:match('"receipt_handle": *"([^"]+)"')
  if handle then
    last = last + 1
    held[last] = handle
  end
end
"""


class Call(NamedTuple):
    """A script of wrk, and over how many connections it runs."""

    name: str
    script: str
    connections: int
    aim: str = ""


def posts(few: list[int]) -> list[Call]:
    plain = SCRIPT.format(**POST, more="")
    aims = {64: ">= 45,000/s", 1_000: "p99 < 60 ms"}
    return [*(Call(f"post, {count:,} connections", plain, count, aims.get(count, "")) for count in few),
            Call("post, a connection for each", SCRIPT.format(**POST, more='wrk.headers["Connection"] = "close"'),
                 BESIDE, ">= 8,000/s")]


def pages(end: int) -> list[Call]:
    """Pages of a partition whose next offset is `end`."""
    return [Call(f"a page of {name}, {where}", script.format(count=count, first=first, last=end - count), BESIDE, aim)
            for where, script, first in (("the first", PAGE, 0), ("one of the newest", PAGE_FROM, end - NEWEST),
                                         ("any", PAGE_FROM, 0))
            for name, count, aim in (("one message", 1, "as a post"), ("20 messages", 20, ""))]


def end_of_load(server: Server) -> int:
    """The next offset of the only partition."""
    url = f"http://127.0.0.1:{server.ports['http']}/v1/topics/load"
    with urllib.request.urlopen(url) as answer:
        end: int = json.load(answer)["bounds"][0]["high_watermark"]
    return end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=list(FEW))
    options = parser.parse_args()
    require_wrk()
    rows = []
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=("http",), settings={"KERNEL__DEFAULT_PARTITIONS": "1"})

        def measure(call: Call) -> None:
            runs = [run_wrk(server, call.name, call.script, folder, options.seconds, call.connections)
                    for _ in range(options.rounds)]
            middle = Run(*(median(column) for column in zip(*runs, strict=True)))
            rows.append([call.name, f"{middle.requests_s:,.0f}", f"{middle.p50_ms:.1f}", f"{middle.p99_ms:.1f}",
                         f"{middle.processor_us:.1f}", call.aim])

        try:
            for call in posts(options.connections):
                measure(call)
            for call in pages(end_of_load(server)):
                measure(call)
            measure(Call("pop and ack by turns", POP_AND_ACK, BESIDE, "as a post"))
        finally:
            server.stop()
    print(table(["one request", "requests/s", "p50 ms", "p99 ms", "hub µs", "aim"], rows))


if __name__ == "__main__":
    main()
