"""Every way to log in; what is remembered, what is forgotten, and what refusals tell."""
from __future__ import annotations

from typing import Any

import pytest

from gatehouse.gateways.admission.accounts import ApiKey
from gatehouse.gateways.admission.administration import UserChanges
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import Denied, LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.passwords import PROVEN_MS, make_key
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.throttle import DELAY_MAX_MS, DELAY_MS, WAITING_MAX
from tests.gateways.admission.kit import Administered, Rig


class RegisteredSession:
    """A connection, as far as a registration knows it."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.changed = 0

    def on_principal_ended(self, reason: str) -> None:
        self.ended.append(reason)

    def on_rights_changed(self) -> None:
        self.changed += 1


@pytest.fixture(scope="module")
def rig() -> Rig:
    made = Rig()
    made.add("ann", "right password", groups=frozenset(("ops",)), tenants=frozenset(("blue",)))
    made.add("off", "right password", disabled=True)
    made.add("keys")
    return made


def key_of(rig: Rig, user: str, **more: Any) -> str:
    id, secret_hash, text = make_key(rig.random)
    rig.accounts.keys[id] = ApiKey(id, user, "test", secret_hash, **more)
    return text


def test_a_password_is_checked_by_the_worker_once_and_then_known(rig: Rig) -> None:
    rig.clock.advance(PROVEN_MS + 1)     # of another test it may be known
    told = rig.ask("ann", "right password")
    assert told == [] and len(rig.passwords.jobs) == 1
    rig.passwords.work()
    who, = told
    assert (who.name, who.tenant, who.anonymous, rig.admission.groups(who)) == ("ann", "/", False, {"ops"})
    assert rig.ask("ann", "right password", door="http", peer="other:1") == [who] and not rig.passwords.jobs
    rig.clock.advance(PROVEN_MS + 1)
    assert rig.ask("ann", "right password") == [] and len(rig.passwords.jobs) == 1
    rig.passwords.work()


@pytest.mark.parametrize(("user", "password"), [
    ("ann", "wrong password"), ("nobody", "right password"), ("off", "right password"), ("keys", ""), ("", ""),
    ("ann", "x" * 5000), ("ann\0", "right password"), ("ann", "right password "), ("ANN", "right password")])
def test_refusals_are_alike_and_late(rig: Rig, user: str, password: str) -> None:
    told = rig.ask(user, password, peer=f"{user}{password[:9]}:1")
    rig.passwords.work()
    assert told == []
    rig.clock.advance(DELAY_MS)
    refusal, = told
    assert isinstance(refusal, NotAuthenticated) and str(refusal) == "unknown user or wrong password"


def test_an_unknown_user_costs_the_same_check_as_a_wrong_password(rig: Rig) -> None:
    before = rig.passwords.done
    for user in ("ann", "nobody", "off"):
        rig.ask(user, "wrong password", peer="likewise:1")
    rig.passwords.work()
    assert rig.passwords.done == before + 3


def test_equal_passwords_are_checked_once(rig: Rig) -> None:
    rig.clock.advance(PROVEN_MS + 1)
    before = rig.passwords.done
    told = [rig.ask("ann", "right password", peer=f"many:{n}") for n in range(50)]
    rig.passwords.work()
    assert rig.passwords.done == before + 1
    assert all(isinstance(one[0], Principal) for one in told)


def test_each_failure_is_answered_later_and_a_success_forgets() -> None:
    rig = Rig()
    rig.add("ann", "right password")
    waited = []
    for _ in range(8):
        told = rig.ask("ann", "wrong password")
        begin_ms = rig.clock.ms
        while not told:
            rig.passwords.work()
            rig.clock.advance(50)
        waited.append(rig.clock.ms - begin_ms)
    assert waited == sorted(waited) and waited[0] == DELAY_MS and waited[-1] == DELAY_MAX_MS
    assert rig.admission.trace.counts["mqtt", "not_authenticated"] == 8
    rig.login("ann", "right password")
    begin_ms = rig.clock.ms
    with pytest.raises(NotAuthenticated):
        rig.login("ann", "wrong password")
    assert rig.clock.ms - begin_ms <= 2 * DELAY_MS


def test_who_comes_again_meanwhile_waits_and_not_too_many_do() -> None:
    rig = Rig()
    rig.add("ann", "right password")
    for _ in range(5):
        with pytest.raises(NotAuthenticated):
            rig.login("ann", "wrong password")
    rig.ask("ann", "wrong password")
    rig.passwords.work()
    checked = rig.passwords.done
    attempts = [rig.ask("ann", f"wrong password {n}") for n in range(WAITING_MAX + 5)]
    assert not rig.passwords.jobs, "nobody is looked at before its time"
    assert [isinstance(attempt[0], LoginsFull) for attempt in attempts if attempt] == [True] * 5
    elsewhere = rig.ask("ann", "right password", peer="198.51.100.1:1")
    rig.passwords.work()
    assert isinstance(elsewhere[0], Principal), "others are not slowed"
    for _ in range(WAITING_MAX):
        rig.clock.advance(DELAY_MAX_MS)
        assert len(rig.passwords.jobs) <= 1, "each guess waits for what the one before has cost"
        rig.passwords.work()
    rig.clock.advance(DELAY_MAX_MS)
    assert rig.passwords.done == checked + 1 + WAITING_MAX
    assert all(len(attempt) == 1 for attempt in attempts)


def test_many_at_once_are_few_guesses() -> None:
    rig = Rig()
    rig.add("ann", "right password")
    guesses = [rig.ask("ann", f"wrong password {n}") for n in range(100)]
    same = [rig.ask("bob", "the same password") for _ in range(100)]
    assert len(rig.passwords.jobs) == 1, "one at a time of all that come from one network"
    elsewhere = rig.ask("ann", "right password", peer="198.51.100.1:1")
    rig.passwords.work()
    assert isinstance(elsewhere[0], Principal)
    for _ in range(60):
        rig.clock.advance(1000)
        rig.passwords.work()
    assert rig.passwords.done == 1 + WAITING_MAX + 1 + 1, "one that was looked at, those that waited, bob's, elsewhere"
    assert all(len(told) == 1 and isinstance(told[0], NotAuthenticated) for told in (*guesses, *same))
    assert isinstance(rig.login("ann", "right password"), Principal)


def test_a_password_that_is_changed_while_it_is_checked_is_wrong() -> None:
    rig = Rig()
    rig.add("ann", "right password")
    told = rig.ask("ann", "right password")
    rig.add("ann", "other password")
    rig.passwords.work()
    rig.clock.advance(DELAY_MS)
    assert isinstance(told[0], NotAuthenticated)
    rig.login("ann", "other password")


def test_nobody_and_guest() -> None:
    open_rig, closed = Rig(allow_anonymous=True), Rig()
    assert open_rig.ask() == [open_rig.admission.anonymous]
    assert open_rig.ask("guest", "guest", preset=True) == [open_rig.admission.anonymous]
    with pytest.raises(NotAuthenticated):
        open_rig.login("guest", "guest")
    assert isinstance(closed.ask()[0], NotAuthenticated)
    with pytest.raises(NotAuthenticated):
        closed.login("guest", "guest", preset=True)
    open_rig.add("guest", "something else")
    with pytest.raises(NotAuthenticated):
        open_rig.login("guest", "guest", preset=True)


def test_an_api_key_as_token_and_in_the_passwords_place(rig: Rig) -> None:
    text = key_of(rig, "keys")
    who, = rig.ask(token=text)
    assert who.name == "keys" and not rig.passwords.jobs
    assert rig.ask("keys", text) == [who] and rig.ask("", text) == [who] and rig.ask(None, text) == [who]
    with pytest.raises(NotAuthenticated):
        rig.login("ann", text)
    for wrong in (text[:-1] + ("a" if text[-1] != "a" else "b"), text + "a", text.upper(), "gh_", "gh_x_y"):
        with pytest.raises(NotAuthenticated) as refused:
            rig.login(token=wrong)
        assert wrong not in str(refused.value)


def test_keys_that_open_nothing(rig: Rig) -> None:
    for text in (key_of(rig, "keys", expires_ms=rig.clock.ms), key_of(rig, "off"), key_of(rig, "gone")):
        with pytest.raises(NotAuthenticated):
            rig.login(token=text)


def test_a_key_expires_on_an_open_connection() -> None:
    rig = Rig()
    rig.add("keys")
    who = rig.login(token=key_of(rig, "keys", expires_ms=rig.clock.ms + 10_000))
    session, gone = RegisteredSession(), RegisteredSession()
    rig.admission.register(who, "mqtt", session)
    rig.admission.register(who, "mqtt", gone).leave()
    rig.clock.advance(9_999)
    assert not session.ended
    rig.clock.advance(1)
    assert session.ended == ["what it logged in with has expired"] and not gone.ended
    assert not rig.clock.waiting


def test_certificates(rig: Rig) -> None:
    assert rig.login(certificate="ann").name == "ann" and rig.login("ann", certificate="ann").name == "ann"
    for user, certificate in ((None, "nobody"), (None, "off"), ("keys", "ann")):
        with pytest.raises(NotAuthenticated):
            rig.login(user, certificate=certificate)
    with pytest.raises(NotAuthenticated):
        rig.login("ann", "wrong password", certificate="ann", peer="certificate:1")


def test_a_certificate_ends_on_an_open_connection_and_opens_none_from_then_on() -> None:
    rig = Rig()
    rig.add("ann", tenants=frozenset(("blue",)))
    ends_ms = rig.clock.ms + 10_000
    who, renewed = rig.login(certificate="ann", ends_ms=ends_ms), rig.login(certificate="ann", ends_ms=ends_ms + 5_000)
    assert who is rig.login(certificate="ann", ends_ms=ends_ms) is not renewed
    blue = rig.admission.in_tenant(who, "blue")
    assert blue is rig.admission.in_tenant(who, "blue") and blue.expires_ms == ends_ms
    registrations = [RegisteredSession(), RegisteredSession(), RegisteredSession()]
    for principal, registration in zip((who, blue, renewed), registrations, strict=True):
        rig.admission.register(principal, "mqtt", registration)
    rig.clock.advance(9_999)
    assert not any(registration.ended for registration in registrations)
    rig.clock.advance(1)
    assert [len(registration.ended) for registration in registrations] == [1, 1, 0]
    with pytest.raises(NotAuthenticated):
        rig.login(certificate="ann", ends_ms=ends_ms)
    assert rig.login(certificate="ann", ends_ms=ends_ms + 5_000) is renewed


def test_certificates_of_hours_do_not_add_up() -> None:
    rig = Rig()
    rig.add("ann")
    for _ in range(100):
        rig.login(certificate="ann", ends_ms=rig.clock.ms + 10_000)
        rig.clock.advance(10_000)
    assert len(rig.admission._login._principals["ann"]) == 1


def test_a_user_that_has_expired_is_let_in_by_nothing() -> None:
    rig = Rig()
    rig.add("ann", "right password", expires_ms=rig.clock.ms + 60_000)
    ways: list[dict[str, Any]] = [{"user": "ann", "password": "right password"}, {"token": key_of(rig, "ann")},
                                  {"certificate": "ann"}]
    assert [rig.login(**way).name for way in ways] == ["ann"] * 3
    rig.clock.advance(60_000)
    for way in ways:
        with pytest.raises(NotAuthenticated):
            rig.login(**way)
    verdict = rig.admission.explain("ann", lambda rights: rights.of_address(Operation.PUBLISH, "a"))
    assert (verdict.allowed, verdict.why) == (False, "denied: the user has expired")


def test_a_user_expires_on_open_connections_and_when_can_be_changed() -> None:
    rig = Administered()

    def put(**changes: Any) -> None:
        rig.did(lambda told: rig.administration.put_user("root", "ann", UserChanges(**changes), told))
    begin_ms = rig.clock.ms
    put(expires_ms=begin_ms + 10_000)
    rig.did(lambda told: rig.administration.put_user("root", "bob", UserChanges(), told))
    who = rig.login(certificate="ann")
    soon = rig.login(certificate="ann", ends_ms=begin_ms + 5_000)
    first, brief, second, other = RegisteredSession(), RegisteredSession(), RegisteredSession(), RegisteredSession()
    for principal, session in ((who, first), (soon, brief), (rig.login(certificate="bob"), other)):
        rig.admission.register(principal, "mqtt", session)
    assert rig.admission.ends_ms(who) == begin_ms + 10_000 and rig.admission.ends_ms(soon) == begin_ms + 5_000
    rig.clock.advance(5_000)
    assert brief.ended == ["what it logged in with has expired"] and not first.ended
    put(expires_ms=begin_ms + 20_000)
    rig.clock.advance(14_999)
    assert not first.ended
    put(expires_ms=0)
    rig.clock.advance(60_000)
    assert not first.ended and rig.admission.ends_ms(who) == 0
    rig.admission.register(who, "mqtt", second).leave()
    put(expires_ms=begin_ms + 1)
    rig.clock.advance(1)
    assert first.ended == ["the user has expired"] and not second.ended and not other.ended
    assert not rig.clock.waiting
    with pytest.raises(NotAuthenticated):
        rig.login(certificate="ann")


def test_tenants(rig: Rig) -> None:
    who = rig.login(certificate="ann")
    assert rig.admission.tenants(who) == {"/", "blue"}
    blue = rig.admission.in_tenant(who, "blue")
    assert blue.tenant == "blue" and rig.admission.in_tenant(who, "blue") is blue
    assert rig.admission.in_tenant(blue, "/") is who
    with pytest.raises(Denied):
        rig.admission.in_tenant(who, "red")


def test_changes_reach_those_who_are_connected() -> None:
    rig = Administered()
    admission, administration = rig.admission, rig.administration
    for name in ("ann", "bob"):
        rig.did(lambda told, name=name: administration.put_user(
            "root", name, UserChanges(password="a password of 1", groups=frozenset(("ops",))), told))
    rig.did(lambda told: administration.add_rule("root", {"who": "group:ops", "pattern": "plant/#"}, told))
    key, text = rig.did(lambda told: administration.create_key("root", "ann", "k", told))
    ann, by_key, bob = rig.login("ann", "a password of 1"), rig.login(token=text), rig.login(certificate="bob")
    registrations = {name: RegisteredSession() for name in ("ann", "key", "bob")}
    for name, who in (("ann", ann), ("key", by_key), ("bob", bob)):
        admission.register(who, "mqtt", registrations[name])
    operation = next(iter(rig.accounts.rules["1"].operations))
    assert all(admission.may(who, operation, "plant/x") for who in (ann, by_key, bob))

    rig.did(lambda told: administration.put_user("root", "ann", UserChanges(groups=frozenset()), told))
    rig.clock.advance(1)
    assert not admission.may(ann, operation, "plant/x") and admission.may(bob, operation, "plant/x")
    assert (registrations["ann"].changed, registrations["key"].changed, registrations["bob"].changed) == (1, 1, 0)
    rig.did(lambda told: administration.put_user("root", "ann", UserChanges(password="another of them"), told))
    rig.clock.advance(1)
    assert registrations["ann"].ended == ["the password was changed"] and not registrations["key"].ended
    with pytest.raises(NotAuthenticated):
        rig.login("ann", "a password of 1")
    rig.did(lambda told: administration.revoke_key("root", "ann", key.id, told))
    rig.clock.advance(1)
    assert registrations["key"].ended == ["the API key was revoked"]
    rig.did(lambda told: administration.delete_rule("root", "1", told))
    rig.clock.advance(1)
    assert not admission.may(bob, operation, "plant/x") and registrations["bob"].changed > 0
    rig.did(lambda told: administration.put_user("root", "bob", UserChanges(disabled=True), told))
    rig.clock.advance(1)
    assert registrations["bob"].ended == ["the user is disabled"]


def test_a_rule_that_speaks_of_client_ids_makes_a_principal_for_each() -> None:
    rig = Administered()
    rig.did(lambda told: rig.administration.put_user("root", "ann", UserChanges(), told))
    ann = rig.login(certificate="ann")
    assert rig.admission.known_by_client(ann, "c1") is ann
    rig.did(lambda told: rig.administration.add_rule("root", {"who": "everyone", "pattern": "dev/{client_id}/#"}, told))
    mine = rig.admission.known_by_client(ann, "c1")
    assert mine is not ann and (mine.name, mine.client_id) == ("ann", "c1")
    operation = next(iter(rig.accounts.rules["1"].operations))
    assert rig.admission.may(mine, operation, "dev/c1/x") and not rig.admission.may(mine, operation, "dev/c2/x")
    assert not rig.admission.may(ann, operation, "dev/c1/x")


def test_secrets_are_in_no_repr(rig: Rig) -> None:
    user = rig.accounts.users["ann"]
    shown = repr([Credentials("ann", "secret-1", "secret-2"), user, UserChanges(password="secret-3"),
                  *rig.accounts.keys.values(), user.scram, rig.login("ann", "right password")])
    assert "secret" not in shown.replace("secret_hash", "") and user.password_hash not in shown
    assert str(user.scram["SCRAM-SHA-256"].stored_key) not in shown
    assert "secret" not in str(user.as_dict()) and user.password_hash not in str(user.as_dict())
