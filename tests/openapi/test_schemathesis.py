"""schemathesis, all its checks, one seed, as an administrator of a real hub: it finds nothing. What it is told is in
`schemathesis.toml` and `strategies.py`."""
from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_hub import DEADLINE_S, ROOT, RunningHub, gatehouse

CONFIG = Path(__file__).with_name("schemathesis.toml")
COMMAND = Path(sys.executable).with_name("schemathesis")
TIMEOUT_S = 1_200    # a minute on two processors that do nothing else
USER, PASSWORD = "root", "correct horse battery"
HUB = """
[hub]
data_dir = "data"
[kernel]
fsync = "never"
[auth]
allow_anonymous = false
[gateways.http]
listen = ["127.0.0.1:0"]
max_wait_s = 0.5
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    folder = tmp_path_factory.mktemp("hub")
    gatehouse("users", "create", USER, "--admin", "--password-file", "-", "--data", str(folder / "data"),
              stdin=PASSWORD).check_returncode()
    hub = RunningHub(folder, HUB)
    try:
        hub.wait_ready()
        yield hub
    finally:
        hub.kill()


def url_of(hub: RunningHub) -> str:
    return f"http://127.0.0.1:{hub.port('http')}"


@pytest.mark.timeout(TIMEOUT_S + 20)
def test_schemathesis_finds_nothing(hub: RunningHub) -> None:
    found = subprocess.run(
        [COMMAND, "--config-file", str(CONFIG), "run", f"{url_of(hub)}/openapi.json", "-H",
         f"Authorization: Bearer {api_key(url_of(hub))}"],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "Traceback" not in hub.log(), hub.log()


def test_no_call_lets_anybody_in_who_does_not_say_who_he_is(hub: RunningHub) -> None:
    with urllib.request.urlopen(f"{url_of(hub)}/openapi.json", timeout=DEADLINE_S) as answer:
        paths = json.load(answer)["paths"]
    calls = [(path, method, operation) for path, methods in paths.items() for method, operation in methods.items()]
    guarded = [call for call in calls if call[2]["security"]]
    assert len(guarded) > 50
    for path, method, operation in guarded:
        query = "&".join(f"{one['name']}=x" for one in operation.get("parameters", ())
                         if one["in"] == "query" and one["required"])
        url = f"{url_of(hub)}{re.sub(r'{[a-z_]+}', 'x', path)}?{query}"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, method=method.upper()), timeout=DEADLINE_S)
        assert refused.value.code == 401, (method, path)


def api_key(url: str) -> str:
    """A key of the user's: nothing is hashed for each of thousands of calls."""
    basic = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    request = urllib.request.Request(f"{url}/v1/users/{USER}/keys", b'{"name": "schemathesis"}', {
        "Authorization": f"Basic {basic}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        return str(json.load(answer)["key"])
