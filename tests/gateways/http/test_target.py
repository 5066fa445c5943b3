"""What a request is aimed at: levels decoded one by one, strictly; a table that takes literals before captures; and the
names that the door may be asked by.
"""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.http.dispatch import Hosts, RouteTable, authority_of, is_host, name_of
from gatehouse.gateways.http.exchange import decode_levels, decode_number, decode_query, decode_seconds, split_target
from gatehouse.gateways.http.problems import Refusal
from gatehouse.gateways.http.routes import build_table
from gatehouse.gateways.http.routes.messages import address_of_path
from tests.gateways.http.fake_kernel import NOW_MS
from tests.gateways.http.kit import Client, run_door

# --- path and query -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("target", "path", "query"), [
    ("/a/b?c=d", "/a/b", "c=d"),
    ("/a?b?c", "/a", "b?c"),
    ("http://host:8080/a/b?c=d", "/a/b", "c=d"),
    ("http://host", "/", ""),
    ("//a", "//a", ""),
    ("*", "*", ""),
])
def test_splits_origin_and_absolute_form(target: str, path: str, query: str) -> None:
    assert split_target(target) == (path, query)


@pytest.mark.parametrize(("raw", "levels"), [
    ("plant/line1/temp", ["plant", "line1", "temp"]),
    ("a//b", ["a", "", "b"]),
    ("/a/", ["", "a", ""]),
    ("a%2Fb/c", ["a/b", "c"]),
    ("a%2fb", ["a/b"]),
    ("maschine%203/gr%C3%BC%C3%9Fe", ["maschine 3", "grüße"]),
    ("grüße", ["grüße"]),
    ("a+b", ["a+b"]),
    ("..", [".."]),
])
def test_decodes_every_level_for_itself(raw: str, levels: list[str]) -> None:
    assert decode_levels(raw) == levels


@pytest.mark.parametrize("raw", ["a%", "a%2", "a%zz", "a%00b", "a\0b", "%FF", "%C3", "\udcff"])
def test_refuses_what_cannot_be_decoded(raw: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode_levels(raw)
    assert refused.value.code == "invalid_address"


@pytest.mark.parametrize(("raw", "address"), [
    ("plant/line1", "plant/line1"),
    ("c/a%2Fb", "c/a%2Fb"),             # a slash inside a level stays inside it
    ("a%252Fb", "a%252Fb"),             # a level that reads %2F is told apart from it
    ("a%2Bb/%23", "a%2Bb/%23"),           # what MQTT takes for wildcards
    ("50%25", "50%"),
])
def test_address_of_a_path(raw: str, address: str) -> None:
    assert address_of_path(raw) == address


def test_query() -> None:
    known = frozenset(("from", "max"))
    assert decode_query("", known) == {}
    assert decode_query("from=2024-01-01T00%3A00%3A00Z&max=5", known) == {"from": "2024-01-01T00:00:00Z", "max": "5"}
    assert decode_query("max=", known) == {"max": ""}


@pytest.mark.parametrize(("raw", "code"), [
    ("form=1", "unknown_parameter"), ("max=1&max=2", "invalid_parameter"), ("max=%FF", "invalid_parameter"),
    ("max=%2", "invalid_parameter"), ("&".join(f"a{i}=1" for i in range(33)), "invalid_parameter"),
])
def test_query_refusals(raw: str, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode_query(raw, frozenset(("from", "max")))
    assert refused.value.code == code


@pytest.mark.parametrize("text", ["", "-1", "0", "11", "1.5", "٣", "1" * 30, " 5"])
def test_numbers_out_of_range(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode_number({"max": text}, "max", 5, 1, 10)
    assert refused.value.code == "invalid_parameter"


def test_numbers() -> None:
    assert decode_number({}, "max", 5, 1, 10) == 5
    assert decode_number({"max": "10"}, "max", 5, 1, 10) == 10


def test_seconds() -> None:
    assert decode_seconds({}, "wait", 10) == 0
    assert decode_seconds({"wait": "1.5"}, "wait", 10) == 1.5
    assert decode_seconds({"wait": "1e-05"}, "wait", 10) == 1e-05
    for text in ("", "-1", "11", "1e2", "1e", "inf", "nan", "1,5"):
        with pytest.raises(Refusal):
            decode_seconds({"wait": text}, "wait", 10)


# --- the call of a path -------------------------------------------------------------------------------------------

@pytest.fixture
def table() -> RouteTable[str]:
    table: RouteTable[str] = RouteTable()
    table.add("GET", "/v1/topics/{topic}", "get")
    table.add("PUT", "/v1/topics/{topic}", "put")
    table.add("GET", "/v1/topics/{topic}/messages", "messages")
    table.add("POST", "/v1/publish/{address...}", "publish")
    table.add("GET", "/v1/transactions/checks", "checks")
    table.add("POST", "/v1/transactions/{id}/commit", "commit")
    table.add("GET", "/", "root")
    return table


@pytest.mark.parametrize(("path", "handler", "captures"), [
    ("/v1/topics/a%2Fb", "get", ("a%2Fb",)),
    ("/v1/topics/messages/messages", "messages", ("messages",)),
    ("/v1/publish/a//b%2F", "publish", ("a//b%2F",)),
    ("/v1/publish/", "publish", ("",)),
    ("/v1/transactions/checks", "checks", ()),
    ("/v1/transactions/7/commit", "commit", ("7",)),
    ("/", "root", ()),
])
def test_finds(table: RouteTable[str], path: str, handler: str, captures: tuple[str, ...]) -> None:
    found = table.find(path)
    assert found is not None
    assert handler in found[0].handlers.values()
    assert found[1] == captures


@pytest.mark.parametrize("path", ["/v1", "/v1/topics", "/v1/topics/", "/v1/topics//messages", "/v1/topics/a/messages/b",
                                  "/v1/publish", "/V1/topics/a", "*", ""])
def test_finds_nothing(table: RouteTable[str], path: str) -> None:
    assert table.find(path) is None


def test_head_is_answered_by_get(table: RouteTable[str]) -> None:
    found = table.find("/v1/topics/a")
    assert found is not None
    assert found[0].handler("HEAD") == "get"
    assert found[0].handler("POST") is None
    assert found[0].allow() == "GET, HEAD, PUT"


def test_a_call_is_declared_once(table: RouteTable[str]) -> None:
    with pytest.raises(ValueError, match="twice"):
        table.add("GET", "/v1/topics/{name}", "again")


def test_the_door_has_every_call_of_the_interface() -> None:
    declared = {(method, endpoint.pattern) for endpoint in build_table().endpoints for method in endpoint.handlers}
    assert {("POST", "/v1/publish/{address...}"), ("POST", "/v1/topics/{topic}/messages"),
            ("GET", "/v1/topics/{topic}/messages"), ("GET", "/v1/topics/{topic}/batches"), ("GET", "/v1/ws"),
            ("POST", "/v1/groups/{group}/pop"), ("GET", "/v1/transactions/checks"), ("GET", "/metrics")} <= declared
    assert len(declared) >= 52


# --- the host -----------------------------------------------------------------------------------------------------

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


def test_a_name_that_was_good_is_refused_once_everybody_is_let_in() -> None:
    def guarded(kernel: object) -> Admission:
        return Admission(kernel, lambda: NOW_MS, allow_anonymous=False)          # type: ignore[arg-type]

    async def test(client: Client) -> None:
        for anonymous, status in ((False, 200), (True, 421), (False, 200), (True, 421)):
            client.door.admission.let_anonymous_in(anonymous)
            for _ in range(2):
                assert (await client.ask("GET", "/healthz", headers={"Host": "hub.example"})).status == status
                assert (await client.ask("GET", "/healthz", headers={"Host": "127.0.0.1"})).status == 200
    run_door(test, admission=guarded, allowed_hosts=())


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
