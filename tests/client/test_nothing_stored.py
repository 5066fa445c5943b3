"""A batch of which nothing was stored is answered 4xx: each message still has an error of its own."""
from __future__ import annotations

import pytest

from gatehouse_client.client import _refused
from gatehouse_client.errors import HubError, InvalidRequest, error_of

MESSAGES = [{"status": 413, "code": "message_too_large", "detail": "too large"},
            {"status": 400, "code": "invalid_body", "detail": "no field"}]


def test_each_message_has_its_own_error() -> None:
    results = _refused(error_of(422, {"code": "nothing_stored", "detail": "none", "messages": MESSAGES}), 2)
    assert [(one.status, one.code) for one in results if isinstance(one, HubError)] == [
        (413, "message_too_large"), (400, "invalid_body")]


def test_any_other_refusal_is_raised() -> None:
    with pytest.raises(InvalidRequest):
        _refused(error_of(400, {"code": "invalid_body", "detail": "no JSON"}), 2)
    with pytest.raises(HubError, match="every message"):
        _refused(error_of(422, {"code": "nothing_stored", "messages": MESSAGES}), 3)
