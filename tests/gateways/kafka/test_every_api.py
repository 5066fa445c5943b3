"""Each API that ApiVersions lists, in each version: asked for by kafka-python's schemas, it has one effect."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslHandshakeRequest

import gatehouse.gateways.kafka as door
from gatehouse.gateways.kafka.api import APIS
from tests.gateways.accounts import KnownUsers
from tests.gateways.kafka.calls import CALLS, message, plant
from tests.gateways.kafka.fakes import Peer
from tests.gateways.kafka.judge import decoded, framed

BY_HAND = {68, 69, 76, 77, 78, 79, 90, 91, 92}
"""kafka-python has no schemas of these: test_consumer_groups.py puts their bytes together itself, share_rig.py
asks by the door's own schemas, and Java's client is the judge of those (tests/interop)."""

EVERY = [(key, version) for key, api in sorted(APIS.items()) if key not in BY_HAND
         for version in range(api.first_version, api.last_version + 1)]


def asked(peer: Peer, key: int, version: int) -> Any:
    """The answer to the call of an API, once what it writes is durable."""
    request = message(key, "Request")
    names = {field.name for field in request._struct.untagged_fields(version)}
    fields = {name: value for name, value in CALLS[key].fields(peer, version).items() if name in names}
    frames = peer.send(framed(request(version=version, **fields), 5))
    for _ in range(3):
        if not frames:
            peer.kernel.flush()
            frames = peer.wait(10)
    return decoded(message(key, "Response"), version, frames[0], 5)


def test_every_api_has_a_call() -> None:
    assert set(CALLS) == set(APIS) - BY_HAND


@pytest.mark.parametrize(("key", "version"), EVERY, ids=[f"{APIS[key].name}-{version}" for key, version in EVERY])
def test_it_does_what_it_is_for(key: int, version: int) -> None:
    peer = plant()
    assert CALLS[key].effect(peer, asked(peer, key, version))


@pytest.mark.parametrize("key", sorted(set(APIS) - BY_HAND))
def test_versions_are_flexible_where_the_schemas_say_so(key: int) -> None:
    api, request = APIS[key], message(key, "Request")
    flexible = [version for version in range(api.first_version, api.last_version + 1)
                if request.flexible_version_q(version)]
    assert flexible == list(range(api.first_flexible, api.last_version + 1))


def test_the_readme_lists_what_is_offered() -> None:
    """A row for each API; where this fails, what it expects is what is to stand there."""
    assert door.__file__ is not None
    text = Path(door.__file__).with_name("README.md").read_text()
    rows = []
    for key, api in sorted(APIS.items()):
        versions = f"{api.first_version}–{api.last_version}" if api.first_version < api.last_version \
            else f"{api.first_version}"
        file = api.dispatch.__module__.rpartition(".")[2]
        rows.append(f"| {key} | {api.name} | {versions} | `api/{file}.py` |")
    assert re.findall(r"^\| \d+ \| .* \| `api/.*$", text, re.MULTILINE) == rows


@pytest.mark.parametrize(("key", "version", "answered"), [(57, 0, True), (57, 1, True), (27, 1, False),
                                                          (1000, 0, False), (15, 99, False)])
def test_what_is_not_offered_is_refused_so_that_its_client_raises(key: int, version: int, answered: bool) -> None:
    peer = plant()
    asked(peer, 3, 5)                             # it is let in
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\xff\xff"
    frames = peer.send(_frame(header))
    if answered:
        assert decoded(message(key, "Response"), version, *frames, 7).error_code == 35
        assert not peer.link.closed
    else:
        assert frames == [] and "is not offered" in peer.link.reason


UPDATE_FEATURES = (57).to_bytes(2, "big") + b"\0\1" + b"\0\0\0\7\xff\xff"


def test_what_is_not_offered_is_refused_as_the_first_request_too() -> None:
    """Admin clients open a connection for one request: sarama's saw nothing but its end."""
    peer = plant()
    frame, = peer.send(framed(ApiVersionsRequest(version=0), 6) + _frame(UPDATE_FEATURES))[1:]
    assert decoded(message(57, "Response"), 1, frame, 7).error_code == 35
    assert not peer.link.closed


@pytest.mark.parametrize("asks_for_login", [False, True])
def test_nothing_that_is_not_offered_is_answered_where_a_login_is_needed(asks_for_login: bool) -> None:
    peer = Peer(admission=KnownUsers, allow_anonymous=asks_for_login)
    if asks_for_login:
        peer.send(framed(SaslHandshakeRequest(version=1, mechanism="PLAIN"), 6))
    assert peer.send(_frame(UPDATE_FEATURES)) == []
    assert peer.link.closed


def _frame(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request
