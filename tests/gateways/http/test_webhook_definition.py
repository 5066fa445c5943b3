"""What a webhook is told; its secrets and signatures."""
from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.webhooks.definition import OLD_SECRET_MS, decode_webhook, read_webhook
from gatehouse.gateways.http.webhooks.signing import key_of, new_secret, sign
from tests.gateways.http.kit import run_door

NOW_MS = 1_700_000_000_000
URL = {"url": "https://example.com/hook", "topic": "orders"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_signature_is_what_the_specification_computes():
    headers = sign([key_of(SECRET)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
                       "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}


def test_two_secrets_two_signatures():
    other = new_secret()
    signature = sign([key_of(SECRET), key_of(other)], "m", 1, b"x")["webhook-signature"]
    expected = [b64encode(hmac.digest(b64decode(secret[6:]), b"m.1.x", hashlib.sha256)).decode()
                for secret in (SECRET, other)]
    assert signature == " ".join(f"v1,{one}" for one in expected)


def test_a_secret_is_made_shown_kept_and_replaced():
    first, shown = read_webhook("w", dict(URL), None, NOW_MS)
    assert shown and key_of(first.secret) and first.group == "webhook.w"
    assert decode_webhook(first.encode()) == first
    assert "secret" not in first.describe()
    same, shown = read_webhook("w", dict(URL), first, NOW_MS)
    assert (same, shown) == (first, "")
    rotated, shown = read_webhook("w", {**URL, "rotate_secret": True}, first, NOW_MS)
    assert shown and rotated.secret != first.secret
    assert rotated.keys(NOW_MS) == [key_of(rotated.secret), key_of(first.secret)]
    assert rotated.keys(NOW_MS + OLD_SECRET_MS) == [key_of(rotated.secret)]
    given, shown = read_webhook("w", {**URL, "secret": SECRET}, rotated, NOW_MS)
    assert (given.secret, given.old_secret, shown) == (SECRET, rotated.secret, "")


@pytest.mark.parametrize("spoil", [
    {"url": None}, {"topic": "no topic"}, {"group": ""}, {"mode": "pigeon"}, {"concurrency": 0}, {"concurrency": 65},
    {"concurrency": True}, {"max_batch": 0}, {"timeout": 0}, {"timeout": 61}, {"timeout": "1"}, {"enabled": 1},
    {"secret": "plain"}, {"secret": "whsec_AAAA"}, {"secret": 7}, {"colour": "red"}, {"rotate_secret": "yes"},
    {"disabled_because": "x"}, {"created": 1}])
def test_what_is_no_webhook(spoil):
    with pytest.raises(Refusal) as refused:
        read_webhook("w", {**URL, **spoil}, None, NOW_MS)
    assert refused.value.code == "invalid_body"


def test_defined_over_http():
    async def test(client):
        put = {"method": "PUT", "target": "/v1/webhooks/shop", "json": {**URL, "enabled": False}}
        made = await client.ask(**put)
        assert (made.status, made.headers["Cache-Control"]) == (201, "no-store")
        assert key_of(made.json["secret"])
        again = await client.ask(**put)
        assert (again.status, "secret" in again.json) == (200, False)
        shown = await client.ask("GET", "/v1/webhooks/shop")
        assert (shown.json["url"], "secret" in shown.json, shown.json["state"]) == (URL["url"], False, None)
        assert made.json["secret"] not in shown.body.decode()
        listed = await client.ask("GET", "/v1/webhooks")
        assert [one["name"] for one in listed.json["webhooks"]] == ["shop"]
        assert (await client.ask("DELETE", "/v1/webhooks/shop")).status == 204
        assert (await client.ask("GET", "/v1/webhooks/shop")).code == "unknown_webhook"
        assert (await client.ask("DELETE", "/v1/webhooks/shop")).code == "unknown_webhook"
    run_door(test)


@pytest.mark.parametrize(("name", "document", "code"), [
    ("a%2Fb", URL, "invalid_body"), ("x" * 129, URL, "invalid_body"), ("w", {}, "invalid_body"),
    ("w", [], "invalid_body"),
    ("w", {**URL, "url": "https://127.0.0.1/"}, "forbidden_url"),
    ("w", {**URL, "url": "http://example.com/"}, "forbidden_url")])
def test_refusals(name, document, code):
    async def test(client):
        assert (await client.ask("PUT", f"/v1/webhooks/{name}", json=document)).code == code
        assert client.kernel.defined == {}
    run_door(test)
