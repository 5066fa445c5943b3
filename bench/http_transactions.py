"""Half messages over HTTP beside plain posts, with wrk on the second core: what a sender behind the door gets.

    python -m bench.http_transactions [--seconds 5] [--rounds 3] [--connections 64]

A pair is a `POST /v1/transactions` of one message of 100 bytes and the commit of what it began: two requests, each
answered after `fdatasync`. wrk keeps one request in flight on each connection; plain posts and pairs take turns.
"""
from __future__ import annotations

import os
from statistics import median
from typing import Final

from bench.http_posts import LOADS, VALUE, Run, post, run_wrk, wrk_options
from bench.servers import start_hub, work_folder

# An id that was answered is committed by whichever connection is free next.
PAIRS: Final = """local begun, first, last = {}, 1, 0
local half
function init(args)
  half = wrk.format("POST", "/v1/transactions?group=load&address=load/a", {["Content-Type"] = "text/plain"}, "VALUE")
end
function request()
  if first > last then return half end
  local id = begun[first]
  begun[first] = nil
  first = first + 1
  return wrk.format("POST", "/v1/transactions/" .. id .. "/commit", {}, "")
end
function response(status, headers, body)
  if status == 201 then
    last = last + 1
    begun[last] = body:match('"id": *"(%d+)"')
  end
end
""".replace("VALUE", VALUE)


def main() -> None:
    options = wrk_options(__doc__)
    plain: list[Run] = []
    pairs: list[Run] = []
    with work_folder() as folder:
        server = start_hub(folder / "hub", doors=("http",))
        try:
            for _ in range(options.rounds):
                plain.append(post(server, LOADS[0], folder, options.seconds, options.connections))
                pairs.append(run_wrk(server, "pairs", PAIRS, folder, options.seconds, options.connections))
        finally:
            server.stop()
    tell(plain, pairs)


def tell(plain: list[Run], pairs: list[Run]) -> None:
    """Medians of the rounds."""
    sends, requests = (Run(*(median(column) for column in zip(*runs, strict=True))) for runs in (plain, pairs))
    print(f"plain posts {sends.requests_s:,.0f}/s, p99 {sends.p99_ms:.1f} ms, {sends.processor_us:.0f} µs of the hub "
          f"each; half + commit {requests.requests_s / 2:,.0f} pairs/s, p99 of a request {requests.p99_ms:.1f} ms, "
          f"{2 * requests.processor_us:.0f} µs a pair; {requests.requests_s / 2 / sends.requests_s:.2f} of the rate; "
          f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
