"""Where webhooks may go: a table of hosts and addresses, the tricks among them."""
from __future__ import annotations

import pytest

from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.webhooks.guard import TargetGuard

PRIVATE = ("127.0.0.1", "127.255.255.254", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
           "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1",
           "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1",
           "::ffff:10.0.0.1", "::127.0.0.1",
           "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1", "not an address", "")
PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.mark.parametrize("address", PRIVATE)
def test_no_socket_connects_to_what_is_not_public(address):
    guard = TargetGuard(())
    assert not guard.may_connect(guard.check("https://example.com/"), address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_connected_to(address):
    guard = TargetGuard(())
    assert guard.may_connect(guard.check("https://example.com/"), address)


@pytest.mark.parametrize("url", [
    "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "https://", "https:///x", "example.com", "",
    "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1:8443/x", "https://169.254.169.254/latest/meta-data",
    "https://[::ffff:127.0.0.1]/", "https://user@example.com/", "https://user:secret@example.com/",
    "https://example.com/#part", "https://example.com:99999/", "https://exa mple.com/", "https://example.com/\r\nX: y",
    "https://example.com\\@127.0.0.1/", "https://ex\u00e4mple.com/", "https://example.com/" + "a" * 2048, "https://[::1"])
def test_forbidden_urls(url):
    with pytest.raises(Refusal) as refused:
        TargetGuard(()).check(url)
    assert refused.value.code == "forbidden_url"


@pytest.mark.parametrize("host", [
    "localhost", "LOCALHOST.", "a.localhost", "localhost.localdomain", "ip6-localhost", "0", "0.0", "2130706433",
    "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "10.1", "3232235777", "0xa9fea9fe", "4294967296",
    "1.2.3.4.5", "256.1.1.1", "08.1.1.1", "0x", "hub", "router.lan", "nas.local", "db.internal", "x.home.arpa",
    "a.127.0.0.1.1"])
def test_what_is_inside_is_refused_however_it_is_written(host):
    for allow in ((), ("hook.internal",)):
        with pytest.raises(Refusal) as refused:
            TargetGuard(allow).check(f"https://{host}/")
        assert refused.value.code == "forbidden_url"


@pytest.mark.parametrize("host", ["example.com", "134744072", "0x8.0x8.0x8.0x8", "010.8.8.8", "shop.internal.example",
                                  "localhost.example"])
def test_what_may_be_public_is_taken(host):
    assert TargetGuard(()).check(f"https://{host}/").host == host


@pytest.mark.parametrize(("allow", "url"), [
    ("hook.internal", "https://a.hook.internal/"), ("*.internal", "https://internal/"),
    ("*.internal", "https://notinternal/"), ("10.0.0.0/8", "https://localhost/"),
    ("10.0.0.0/8", "https://2130706433/")])
def test_what_is_inside_is_refused_where_something_else_is_allowed(allow, url):
    with pytest.raises(Refusal):
        TargetGuard((allow,)).check(url)


@pytest.mark.parametrize(("allow", "url", "address", "allowed"), [
    ("10.1.0.0/16", "https://hook.example/", "10.1.2.3", True),
    ("10.1.0.0/16", "https://hook.example/", "10.2.2.3", False),
    ("10.1.0.0/16", "https://10.1.2.3/", "10.1.2.3", True), ("127.0.0.1", "https://127.0.0.1/", "127.0.0.1", True),
    ("127.0.0.1", "https://x.example/", "::ffff:127.0.0.1", True),
    ("hook.internal", "https://hook.internal/", "10.9.9.9", True),
    ("hook.internal", "https://HOOK.internal./", "10.9.9.9", True),
    ("*.internal", "https://a.b.internal/", "10.9.9.9", True), ("hub", "https://hub/", "10.9.9.9", True),
    ("10.0.0.0/8", "https://hub/", "10.9.9.9", True), ("10.0.0.0/8", "https://hub.internal/", "10.9.9.9", True),
    ("127.0.0.0/8", "https://localhost/", "127.0.0.1", True), ("::1", "https://localhost/", "::1", True),
    ("localhost", "https://localhost/", "127.0.0.1", True), ("127.0.0.1", "https://2130706433/", "127.0.0.1", True),
    ("http://127.0.0.1", "http://localhost:8000/", "127.0.0.1", True),
    ("http://127.0.0.1", "http://127.0.0.1:8000/", "127.0.0.1", True),
    ("http://127.0.0.1", "http://x.example/", "127.0.0.1", True),
    ("http://127.0.0.1", "http://x.example/", "8.8.8.8", False),
    ("http://hook.internal", "http://hook.internal/", "10.9.9.9", True),
])
def test_what_is_allowed_besides(allow, url, address, allowed):
    guard = TargetGuard((allow,))
    assert guard.may_connect(guard.check(url), address) is allowed


@pytest.mark.parametrize(("allow", "url"), [
    ("127.0.0.1", "http://127.0.0.1/"), ("hook.internal", "http://hook.internal/"),
    ("http://10.0.0.0/8", "http://127.0.0.1/")])
def test_plain_http_is_allowed_by_name_alone(allow, url):
    with pytest.raises(Refusal):
        TargetGuard((allow,)).check(url)


@pytest.mark.parametrize("entry", ["", "http://", "a/b", "https://x", "*", "a.*.b", "10.0.0.0/99"])
def test_an_entry_that_says_nothing_is_refused(entry):
    with pytest.raises(ValueError):
        TargetGuard((entry,))
