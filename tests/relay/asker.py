"""Asks a hub's HTTP door from inside a network: one JSON document a line in, one out; `python -m tests.relay.asker`."""
from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request

for line in sys.stdin:
    method, url, text, headers = json.loads(line)
    request = urllib.request.Request(url, data=None if text is None else text.encode(), headers=headers, method=method)
    if text is not None and text.startswith("{"):
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            body, status = answer.read().decode(), answer.status
    except urllib.error.HTTPError as error:
        body, status = error.read().decode(), error.code
    except OSError as error:
        body, status = str(error), 0
    print(json.dumps([status, body]), flush=True)
