"""The common path: who, may they, how much; and the caches that keep it off the hot path."""
from __future__ import annotations

import pytest

from gatehouse.gateways.admission.admission import Admission, Denied, NotAuthenticated
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.limits.limit import Quota
from gatehouse.gateways.admission.places import GivenPlaces
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.trace import EVENTS_MAX, Trace
from gatehouse.gateways.amqp.login import read_login
from gatehouse.gateways.kit import FakeHub, FakeLink
from gatehouse.kernel.errors import InvalidAddress


def login(admission: Admission, door: str, user: str | None = None, password: str | None = None) -> Principal:
    """The principal, told before `authenticate` returns. Raises NotAuthenticated."""
    told: list[Principal | NotAuthenticated] = []
    admission.authenticate(door, "203.0.113.7:50000", Credentials(user, password), told.append)
    who = told.pop()
    if isinstance(who, NotAuthenticated):
        raise who
    return who


def test_without_credentials_everybody_is_anonymous_and_the_same() -> None:
    admission = FakeHub().admission
    principal = login(admission, "mqtt")
    assert principal is login(admission, "kafka")
    assert principal.anonymous and principal.tenant == "/"


@pytest.mark.parametrize(("door", "user", "password"), [
    ("mqtt", "guest", "guest"), ("amqp", "guest", "wrong"), ("amqp", "me", "guest"), ("mqtt", "me", None),
    ("http", None, "secret"), ("mqtt", "", "")])
def test_there_are_no_users_yet_so_every_password_is_wrong(door: str, user: str | None, password: str | None) -> None:
    admission = FakeHub().admission
    with pytest.raises(NotAuthenticated) as refused:
        login(admission, door, user, password)
    assert "secret" not in str(refused.value)
    assert admission.trace.counts[door, "not_authenticated"] == 1


@pytest.mark.parametrize(("mechanism", "response"), [
    ("PLAIN", b"\0guest\0guest"), ("AMQPLAIN", b"\5LOGINS\0\0\0\5guest\x08PASSWORDS\0\0\0\5guest")])
def test_guest_is_anonymous_on_the_amqp_door_while_anonymous_access_is_allowed(mechanism: str, response: bytes) -> None:
    credentials = read_login(mechanism, response, FakeLink())
    told: list[Principal | NotAuthenticated] = []
    FakeHub().admission.authenticate("amqp", "203.0.113.7:50000", credentials, told.append)
    FakeHub(allow_anonymous=False).admission.authenticate("amqp", "203.0.113.7:50000", credentials, told.append)
    assert isinstance(told[0], Principal) and told[0].anonymous
    assert isinstance(told[1], NotAuthenticated)


def test_nobody_without_credentials_once_anonymous_access_is_off() -> None:
    with pytest.raises(NotAuthenticated):
        login(FakeHub(allow_anonymous=False).admission, "mqtt")


def test_a_hub_without_rules_is_open_to_anonymous_and_to_nobody_else() -> None:
    open_hub, closed = FakeHub().admission, FakeHub(allow_anonymous=False).admission
    for operation in Operation:
        assert open_hub.may(open_hub.anonymous, operation, "a") and open_hub.may_hub(open_hub.anonymous, operation)
        assert not open_hub.may(Principal("ann"), operation, "a")
        assert not closed.may(closed.anonymous, operation, "a")


def test_placing_asks_for_the_right_to_publish_and_to_create() -> None:
    hub = FakeHub(decision=lambda principal, operation, address: address != "secret/x")
    principal = hub.admission.anonymous
    guard = hub.services.guard("http", principal, None)
    assert hub.admission.place(principal, "open/x").address == "open/x"
    assert guard.look(guard.place_key("open", b"x")).address == "open/x"
    with pytest.raises(Denied, match="may not publish at 'secret/x'"):
        hub.admission.place(principal, "secret/x")
    with pytest.raises(Denied, match="may not publish at 'secret/x'"):
        guard.place_key("secret", b"x")


def test_nobody_gets_into_unrouted_by_the_address_of_something_else() -> None:
    hub = FakeHub(decision=lambda principal, operation, address: not address.startswith("unrouted"))
    with pytest.raises(Denied):
        hub.services.guard("http", hub.admission.anonymous, None).place_key("unrouted", b"plant/x")


def test_what_the_kernel_refuses_passes_through() -> None:
    hub = FakeHub()
    with pytest.raises(InvalidAddress):
        hub.admission.place(hub.admission.anonymous, "a/#")


def test_places_are_one_principals_on_one_door() -> None:
    hub = FakeHub()
    admission, anonymous = hub.admission, hub.admission.anonymous
    port, other = hub.services.door("mqtt").port, hub.services.door("amqp").port
    given = admission.places(anonymous, port)
    assert given is admission.places(anonymous, port)
    assert given is not admission.places(anonymous, other)
    assert given is not admission.places(Principal("ann"), port)
    by_raw = given.by_raw
    given.remember_raw(b"t", 1)
    admission.forget_places()
    assert by_raw == {} and given.by_raw is by_raw, "codecs hold on to the dictionary"


def test_what_has_been_known_longest_is_forgotten() -> None:
    given = GivenPlaces(FakeHub().services.door("mqtt").port, lambda address: None, places_max=3)
    for number, name in enumerate((b"a", b"b", b"c", b"a", b"d")):
        given.remember_raw(name, number)
    assert list(given.by_raw) == [b"b", b"c", b"d"]


def test_charging_counts_and_slows_down_only_who_has_a_quota() -> None:
    hub = FakeHub(quotas={"ann": Quota(messages_per_s=10)})
    admission, ann = hub.admission, Principal("ann")
    assert admission.charge("mqtt", ann, 10, 1000) == 0
    assert admission.charge("http", Principal("ann"), 10, 1000) == 1000, "connections of one user share its quota"
    assert admission.charge("http", admission.anonymous, 10**6, 10**9) == 0
    assert (admission.trace.flow("mqtt").messages_in, admission.trace.flow("http").bytes_in) == (10, 1_000_001_000)


def test_events_are_bounded_in_kinds_not_in_number() -> None:
    trace = Trace()
    for n in range(EVENTS_MAX + 10):
        trace.on_event("door", f"event{n}", 2)
    trace.on_event("door", "event0")
    assert len(trace.counts) == EVENTS_MAX
    assert trace.counts["door", "event0"] == 3


def test_no_quota_costs_no_meter() -> None:
    hub = FakeHub()
    assert isinstance(hub.admission, Admission)
    assert hub.admission.charge("mqtt", Principal("ann"), 1, 1) == 0


def test_for_whom_a_topic_counts_that_somebody_creates() -> None:
    hub = FakeHub(allow_anonymous=False, decision=lambda who, what, where: who.name == "root")
    assert hub.admission.maker(Principal("root")) == "" and hub.admission.maker(Principal("ann")) == "ann"
