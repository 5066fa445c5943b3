"""Which names the door may be asked by, and what pages of other sites may make a browser ask for."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.http.hosts import Hosts, authority_of, is_host, name_of
from gatehouse.gateways.http.problems import Refusal
from tests.gateways.http.fake_kernel import NOW_MS
from tests.gateways.http.kit import Client, run_door

GOOD = ("127.0.0.1", "127.0.0.1:8080", "0.0.0.0:1", "192.168.1.7:80", "[::1]", "[::1]:8080", "[fe80::1]:8080",
        "localhost", "LocalHost:8080", "localhost:", "localhost.:8080", "ui.localhost:8080", "machine", "Machine:8080",
        "hub.example", "HUB.example.:443", "", "hub", "my_hub-1:8080")
BAD = ("evil.example", "evil.example:8080", "evil.example.", "127.0.0.1.evil.example", "localhost.evil.example",
       "1.2.3", "127.1", "0x7f.0.0.1", "2130706433", "[::1", "[evil.example]", "[127.0.0.1]", "::1",
       "[::1]evil", "127.0.0.1:evil", "127.0.0.1:80:80", "evil@localhost", "localhost@evil.example",
       "localhost/evil", "localhost,evil.example", ".localhost.evil", ".", "*", "lоcalhost", "a b")


@pytest.mark.parametrize("host", GOOD)
def test_names_that_are_the_hubs_own(host: str) -> None:
    Hosts(("Hub.Example",), ("machine",)).check(host, True)


@pytest.mark.parametrize("host", BAD)
@pytest.mark.parametrize("anonymous", [True, False])
def test_names_of_somebody_else(host: str, anonymous: bool) -> None:
    with pytest.raises(Refusal) as refused:
        Hosts(("Hub.Example",), ("machine", "")).check(host, anonymous)
    assert refused.value.code == "host_not_allowed"


def test_when_names_are_looked_at() -> None:
    Hosts((), ("machine",)).check("evil.example", False)              # everybody has to log in: his own affair
    Hosts(("*",), ()).check("evil.example", True)
    with pytest.raises(Refusal):
        Hosts((), ()).check("evil.example", True)


def test_names_that_are_remembered_are_bounded() -> None:
    hosts = Hosts((), ())
    for port in range(1, 2000):
        hosts.admit(f"localhost:{port}", True)
    assert len(hosts._admitted) <= 256
    with pytest.raises(Refusal):
        hosts.check("evil.example", True)


def test_names_and_ports() -> None:
    assert name_of("A.Example:1") == "a.example" and name_of("[::1]:1") == "::1" and name_of("a:b") == ""
    assert authority_of("http://evil.example/v1?x=://y") == "evil.example" and authority_of("*") is None
    assert authority_of("http://evil.example?x") == "evil.example" and authority_of("a:b") is None


@pytest.mark.parametrize("request_line", ["GET /healthz", "GET /v1/topics", "GET /ui/", "GET /mqtt",
                                          "OPTIONS /v1/topics", "POST /v1/publish/plant", "GET /nothing",
                                          "GET /metrics"])
def test_every_path_is_refused_to_a_page_whose_name_was_led_here(request_line: str) -> None:
    async def test(client: Client) -> None:
        for host in ("evil.example:8080", "EVIL.example"):
            answer = await client.send(f"{request_line} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
                                       "Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 421 ") and b'"code":"host_not_allowed"' in answer, answer
            assert b"Access-Control-Allow-Origin" not in answer
        assert client.kernel.appended == []
    run_door(test, allowed_hosts=())


def test_the_target_counts_as_the_header_does() -> None:
    async def test(client: Client) -> None:
        for target, host, status in (("http://evil.example/healthz", "127.0.0.1", 421), ("/healthz", "127.0.0.1", 200),
                                     ("http://127.0.0.1/healthz", "evil.example", 421),
                                     ("http://localhost:80/healthz", "127.0.0.1", 200)):
            answer = await client.send(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()), (target, host, answer)
    run_door(test, allowed_hosts=())


def test_a_hub_with_logins_is_asked_by_any_name_unless_some_are_given() -> None:
    def guarded(kernel: object) -> Admission:
        return Admission(kernel, lambda: NOW_MS, allow_anonymous=False)          # type: ignore[arg-type]

    async def by_any(client: Client) -> None:
        assert (await client.ask("GET", "/healthz", headers={"Host": "hub.example"})).status == 200

    async def by_those(client: Client) -> None:
        assert (await client.ask("GET", "/healthz", headers={"Host": "hub.example:443"})).status == 200
        assert (await client.ask("GET", "/healthz", headers={"Host": "other.example"})).code == "host_not_allowed"
        assert (await client.ask("GET", "/healthz")).status == 200               # by address
    run_door(by_any, admission=guarded, allowed_hosts=())
    run_door(by_those, admission=guarded, allowed_hosts=("hub.example",))


@pytest.mark.parametrize(("method", "target", "said", "refused"), [
    ("POST", "/v1/publish/a", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, True),
    ("POST", "/v1/publish/a", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),
    ("POST", "/v1/publish/a", {"Sec-Fetch-Site": "same-site"}, True),
    ("POST", "/v1/publish/a", {"Sec-Fetch-Site": "same-origin"}, False),
    ("POST", "/v1/publish/a", {"Sec-Fetch-Site": "none"}, False),
    ("GET", "/v1/topics", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
     True),
    ("GET", "/v1/topics", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
     True),
    ("GET", "/v1/topics", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
     False)])
def test_pages_whose_browser_names_no_origin(method: str, target: str, said: dict[str, str], refused: bool) -> None:
    async def test(client: Client) -> None:
        answer = await client.ask(method, target, data=b"x" if method == "POST" else None, headers=said)
        assert (answer.status == 403 and answer.code == "origin_not_allowed") if refused else answer.status < 300
        assert bool(client.kernel.appended) == (method == "POST" and not refused)
    run_door(test)


@pytest.mark.parametrize("path", ["/v1/transactions/checks?group=g&wait=0", "/v1/transactions/checks/events?group=g"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_no_link_of_another_site_begins_what_has_effects(path: str, site: str) -> None:
    """Who polls for checks is a member of the group, and is asked in another one's place."""
    async def test(client: Client) -> None:
        answer = await client.ask("GET", path, headers={
            "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"})
        assert (answer.status, answer.code) == (403, "origin_not_allowed")
    run_door(test)


def test_what_can_be_a_host() -> None:
    assert all(map(is_host, GOOD)) and is_host("[fe80::1%25eth0]:80") and is_host("a%20b")
    assert not any(map(is_host, ("a b", "a/b", "a@b", "a:b", "a:80:80", "::1", "[::1", "[::1]x", "a\tb", "a?b", "ü")))


def test_what_cannot_be_a_host_is_no_request() -> None:
    """RFC 9112, 3.2: 400, whoever may ask by whatever name."""
    async def test(client: Client) -> None:
        for host in ("a b", "evil@127.0.0.1", "127.0.0.1:evil", "127.0.0.1/"):
            answer = await client.send(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 400 ") and b'"code":"malformed_request"' in answer, (host, answer)
    for allowed in ((), ("*",)):
        run_door(test, allowed_hosts=allowed)
