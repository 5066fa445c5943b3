"""Changes of accounts: what the database keeps, what is refused, what is audited."""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gatehouse.gateways.admission import passwords
from gatehouse.gateways.admission.accounts import MAX_GROUPS, Accounts
from gatehouse.gateways.admission.administration import MAX_KEYS_OF_USER, Administration, UserChanges
from gatehouse.gateways.admission.audit import MAX_DETAILS_BYTES, Audit, Author
from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.errors import (
    AccountError,
    AccountsUnavailable,
    FromFile,
    InvalidRule,
    InvalidUser,
    LastAdministrator,
    UnknownKey,
    UnknownRule,
    UnknownUser,
    UserExists,
)
from gatehouse.gateways.admission.limits.limit import Quota
from gatehouse.gateways.admission.passwords import check_password, hash_password
from gatehouse.gateways.admission.rules import read_rule
from gatehouse.kernel.errors import TopicExists
from tests.gateways.admission.kit import Administered, Worker


@pytest.fixture
def rig(tmp_path: Path) -> Administered:
    return Administered(f"sqlite:///{tmp_path / 'catalogue.sqlite'}")


def put(rig: Administered, name: str, create: bool | None = None, **changes: Any) -> Any:
    return rig.did(lambda told: rig.administration.put_user("root", name, UserChanges(**changes), told, create=create))


def test_memory_is_what_the_database_holds(rig: Administered) -> None:
    put(rig, "ann", password="a password", tenant="blue", tenants=frozenset(("red",)),
        groups=frozenset(("ops", "night")), messages_per_s=5, bytes_per_s=1e6)
    put(rig, "böb", disabled=True, expires_ms=rig.clock.ms + 1)
    put(rig, "ann", add_groups=frozenset(("day",)), remove_groups=frozenset(("night",)))
    create_key, limits = rig.administration.create_key, [{"operations": ["publish"], "pattern": "plant/#"}]
    rig.did(lambda told: create_key("root", "ann", "k", told, expires_ms=rig.clock.ms + 5, restriction=limits))
    rig.did(lambda told: create_key("root", "ann", "l", told))
    for table in ({"who": "everyone", "pattern": "a/{user}/#", "effect": "deny", "tenant": "*"},
                  {"who": "group:ops", "kind": "hub", "operations": ["relay"]},
                  {"who": "user:ann", "kind": "topic", "pattern": "t*"}):
        rig.did(lambda told, table=table: rig.administration.add_rule("root", table, told))
    rig.did(lambda told: rig.administration.replace_rule("root", "3", {"who": "user:bob", "pattern": "x"}, told))
    again = Accounts()
    again.load(*rig.store.read())
    assert (again.users, again.keys, again.rules) == (rig.accounts.users, rig.accounts.keys, rig.accounts.rules)
    ann = again.users["ann"]
    assert (ann.groups, ann.quota, ann.tenant) == ({"ops", "day"}, Quota(5, 1e6), "blue")
    assert check_password(ann.password_hash, "a password") and ann.scram["SCRAM-SHA-512"].iterations >= 4096


def test_no_secret_is_in_the_database_or_in_the_audit(rig: Administered, tmp_path: Path) -> None:
    put(rig, "ann", password="correct horse")
    _, text = rig.did(lambda told: rig.administration.create_key("root", "ann", "k", told))
    secret = text.rpartition("_")[2]
    with rig.store._engine.connect() as connection:
        rows = [str(row) for table in ("users", "api_keys")
                for row in connection.execute(sa.text(f"SELECT * FROM {table}"))]
    for told in (*rows, str(rig.audited)):
        assert "correct horse" not in told and secret not in told
    assert [action for _, action, _ in rig.audited] == ["user.created", "key.created"]
    assert rig.audited[0][2] == {"user": "ann", "password": "changed"}
    assert "argon2" in rows[0]


@pytest.mark.parametrize(("name", "changes"), [
    ("", {}), ("x" * 256, {}), ("a\nb", {}), ("anonymous", {}), ("\0", {}),
    ("ann", {"password": "short"}), ("ann", {"password": "ﬃﬃﬃ"}),
    ("ann", {"password": "x" * 1025}), ("ann", {"password": "bell\x07 in it"}), ("ann", {"groups": frozenset(("",))}),
    ("ann", {"add_groups": frozenset(("a\0",))}), ("ann", {"tenant": "*"}), ("ann", {"tenants": frozenset(("",))}),
    ("ann", {"messages_per_s": -1}), ("ann", {"bytes_per_s": float("nan")}),
    ("ann", {"groups": frozenset(map(str, range(MAX_GROUPS + 1)))})])
def test_users_that_cannot_be(rig: Administered, name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidUser) as refused:
        put(rig, name, **changes)
    assert "bell" not in str(refused.value) and not rig.accounts.users and not rig.audited


def test_making_and_changing(rig: Administered) -> None:
    with pytest.raises(UnknownUser):
        put(rig, "ann", create=False, disabled=True)
    put(rig, "ann", create=True)
    with pytest.raises(UserExists):
        put(rig, "ann", create=True)
    assert put(rig, "ann", disabled=True).disabled
    rig.did(lambda told: rig.administration.delete_user("root", "ann", told))
    with pytest.raises(UnknownUser):
        rig.did(lambda told: rig.administration.delete_user("root", "ann", told))
    with pytest.raises(UnknownUser):
        rig.administration.user("ann")


def test_an_administrator_is_left(rig: Administered) -> None:
    """A hub without one can still be made one: nobody is asked on a hub that is open, or from the data directory."""
    put(rig, "root", groups=frozenset(("admins",)))
    for changes in ({"disabled": True}, {"groups": frozenset()}, {"remove_groups": frozenset(("admins",))},
                    {"expires_ms": 1 << 52}):
        with pytest.raises(LastAdministrator):
            put(rig, "root", **changes)                                     # type: ignore[arg-type]
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: rig.administration.delete_user("root", "root", told))
    put(rig, "root", password="may be changed")
    put(rig, "second", groups=frozenset(("admins",)))
    assert put(rig, "root", disabled=True).disabled and rig.accounts.is_administrator("second")
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: rig.administration.delete_user("root", "second", told))
    rig.did(lambda told: rig.administration.delete_user("root", "root", told))


def test_an_administrator_who_expires_is_not_the_one_that_is_left(rig: Administered) -> None:
    put(rig, "root", groups=frozenset(("admins",)))
    put(rig, "brief", groups=frozenset(("admins",)), expires_ms=1 << 52)
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: rig.administration.delete_user("root", "root", told))
    put(rig, "brief", expires_ms=0)
    rig.did(lambda told: rig.administration.delete_user("brief", "root", told))


@pytest.mark.parametrize("expires_ms", [-1, 1 << 53])
def test_when_nobody_can_expire(rig: Administered, expires_ms: int) -> None:
    with pytest.raises(InvalidUser, match="expires at a time"):
        put(rig, "ann", expires_ms=expires_ms)


def test_when_a_user_expires_is_audited(rig: Administered) -> None:
    put(rig, "ann", expires_ms=7)
    put(rig, "ann", expires_ms=0)
    put(rig, "ann", disabled=True)
    assert [details for _, _, details in rig.audited] == [
        {"user": "ann", "expires": 7}, {"user": "ann", "expires": None}, {"user": "ann", "disabled": True}]


def test_names_are_prepared_as_logins_prepare_them(rig: Administered) -> None:
    put(rig, "e\u0301ve", password="a password\u00a01")
    assert rig.login("e\u0301ve", "a password 1").name == "\u00e9ve"


def test_keys(rig: Administered) -> None:
    create = rig.administration.create_key
    with pytest.raises(UnknownUser):
        rig.did(lambda told: create("root", "ann", "k", told))
    put(rig, "ann")
    for name, more in (("", {}), ("x\n", {}), ("k", {"restriction": [
            {"effect": "deny", "pattern": "x"}]}), ("k", {"restriction": [{"pattern": "x"}] * 101})):
        with pytest.raises(InvalidUser):
            rig.did(lambda told, name=name, more=more: create("root", "ann", name, told, **more))   # type: ignore[arg-type]
    with pytest.raises(InvalidRule):
        rig.did(lambda told: create("root", "ann", "k", told, restriction=[{"pattern": "a+"}]))
    for n in range(MAX_KEYS_OF_USER):
        rig.did(lambda told, n=n: create("root", "ann", f"k{n}", told))
    with pytest.raises(InvalidUser, match="at most"):
        rig.did(lambda told: create("root", "ann", "one more", told))
    key = next(iter(rig.accounts.keys.values()))
    for user, id in (("ann", "nothing"), ("bob", key.id)):
        with pytest.raises(UnknownKey):
            rig.did(lambda told, user=user, id=id: rig.administration.revoke_key("root", user, id, told))
    rig.did(lambda told: rig.administration.delete_user("root", "ann", told))
    assert not rig.accounts.keys and not rig.store.read()[1]


def test_rules(rig: Administered) -> None:
    rig.accounts.configure([read_rule({"who": "everyone", "pattern": "x"}, "file-1")], {"ops": ["ann"]})
    with pytest.raises(InvalidRule):
        rig.did(lambda told: rig.administration.add_rule("root", {"who": "ann"}, told))
    for id in ("7", "x", "-1", "1" * 30):
        with pytest.raises(UnknownRule):
            rig.did(lambda told, id=id: rig.administration.delete_rule("root", id, told))
    with pytest.raises(FromFile):
        rig.did(lambda told: rig.administration.delete_rule("root", "file-1", told))
    with pytest.raises(FromFile):
        rig.did(lambda told: rig.administration.replace_rule(
            "root", "file-1", {"who": "everyone", "pattern": "y"}, told))
    assert rig.administration.rule("file-1").from_file and rig.accounts.groups_of("ann") == {"ops"}


EVERYTHING: list[dict[str, Any]] = [
    {"who": "everyone", "effect": "deny", "kind": kind, "tenant": "*",
     **({} if kind == "hub" else {"pattern": pattern})}
    for kind, pattern in (("hub", ""), ("address", "#"), ("topic", "*"), ("group", "*"))]


def test_no_rule_takes_anything_from_an_administrator(rig: Administered) -> None:
    """What a mistaken rule has closed is opened again by whoever is in `admins`."""
    put(rig, "root", groups=frozenset(("admins",)))
    root = rig.login(certificate="root")
    for rule in EVERYTHING:
        rig.did(lambda told, rule=rule: rig.administration.add_rule("root", rule, told))
    admission = rig.admission
    assert admission.may_hub(root, Operation.ADMINISTER) and admission.may(root, Operation.PUBLISH, "a")
    assert "whatever the rules say" in admission.explain("root", lambda rights: rights.of_hub(Operation.ADMINISTER)).why
    for id in list(rig.accounts.rules):
        rig.did(lambda told, id=id: rig.administration.delete_rule("root", id, told))
    assert not rig.accounts.rules


def test_who_administers_by_a_rule_is_not_locked_out(rig: Administered) -> None:
    """Nobody is in `admins`: rules alone say who may administer, and one that would leave nobody is refused."""
    put(rig, "ops", groups=frozenset(("crew",)))
    administration = rig.administration
    allow = rig.did(lambda told: administration.add_rule("x", {"who": "group:crew", "kind": "hub"}, told))
    ops = rig.login(certificate="ops")
    assert rig.admission.may_hub(ops, Operation.ADMINISTER)
    for rule in (EVERYTHING[0], {**EVERYTHING[0], "who": "user:ops"}, {**EVERYTHING[0], "who": "group:crew"},
                 {**EVERYTHING[0], "operations": ["administer"], "tenant": "/"}):
        with pytest.raises(LastAdministrator, match="mend its rules"):
            rig.did(lambda told, rule=rule: administration.add_rule("ops", rule, told))
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: administration.delete_rule("ops", allow.id, told))
    for rule in ({"who": "user:nobody", "kind": "hub"}, {"who": "group:crew", "kind": "hub", "operations": ["relay"]},
                 {"who": "group:crew", "kind": "hub", "tenant": "elsewhere"}):
        with pytest.raises(LastAdministrator):
            rig.did(lambda told, rule=rule: administration.replace_rule("ops", allow.id, rule, told))
    for changes in ({"disabled": True}, {"groups": frozenset()}):
        with pytest.raises(LastAdministrator):
            put(rig, "ops", **changes)                                      # type: ignore[arg-type]
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: administration.delete_user("ops", "ops", told))
    assert rig.admission.may_hub(ops, Operation.ADMINISTER) and list(rig.accounts.rules) == [allow.id]
    for rule in (*EVERYTHING[1:], {**EVERYTHING[0], "operations": ["relay"]}):       # his own rights are not the hub's
        rig.did(lambda told, rule=rule: administration.add_rule("ops", rule, told))
    put(rig, "root", groups=frozenset(("admins",)))
    rig.did(lambda told: administration.add_rule("ops", EVERYTHING[0], told))
    assert not rig.admission.may_hub(ops, Operation.ADMINISTER) and rig.admission.somebody_administers


def test_an_open_hub_is_not_closed_to_its_only_administrator(tmp_path: Path) -> None:
    """Without users anonymous administers, until a rule speaks of it."""
    rig = Administered(f"sqlite:///{tmp_path / 'catalogue.sqlite'}", allow_anonymous=True)
    administration = rig.administration
    rule = {"who": "everyone", "effect": "deny", "operations": ["publish"], "pattern": "secret/#"}
    for mistaken in (rule, {"who": "user:anonymous", "pattern": "a"},
                     {"who": "everyone", "kind": "group", "pattern": "x"}):
        with pytest.raises(LastAdministrator, match="anonymous"):
            rig.did(lambda told, mistaken=mistaken: administration.add_rule("anonymous", mistaken, told))
    rig.did(lambda told: administration.add_rule("anonymous", {"who": "user:ann", "pattern": "a"}, told))
    own = rig.did(lambda told: administration.add_rule("anonymous", {"who": "user:anonymous", "kind": "hub"}, told))
    rig.did(lambda told: administration.add_rule("anonymous", rule, told))
    assert rig.admission.may_hub(rig.admission.anonymous, Operation.ADMINISTER)
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: administration.delete_rule("anonymous", own.id, told))
    put(rig, "root", groups=frozenset(("admins",)))
    rig.did(lambda told: administration.delete_rule("anonymous", own.id, told))
    assert not rig.admission.may_hub(rig.admission.anonymous, Operation.ADMINISTER)


def test_rules_that_leave_nobody_already_can_be_changed(rig: Administered) -> None:
    """A fresh hub, or one whose administrators an issuer's tokens name: there is nobody to keep."""
    for rule in EVERYTHING:
        rig.did(lambda told, rule=rule: rig.administration.add_rule("x", rule, told))
    rig.did(lambda told: rig.administration.delete_rule("x", "1", told))
    assert not rig.admission.somebody_administers


def test_a_database_that_does_not_answer_changes_nothing(rig: Administered) -> None:
    with rig.store._engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE users"))
    with pytest.raises(AccountsUnavailable):
        put(rig, "ann", password="a password")
    assert not rig.accounts.users and not rig.audited


def test_quotas_follow_their_user(rig: Administered) -> None:
    put(rig, "ann", messages_per_s=10)
    ann = rig.login(certificate="ann")
    assert rig.admission.charge("mqtt", ann, 10, 1) == 0 and rig.admission.charge("kafka", ann, 10, 1) > 0
    put(rig, "ann", messages_per_s=0)
    assert rig.admission.charge("mqtt", ann, 10**6, 1) == 0


def test_argon2_says_no_to_what_is_no_hash() -> None:
    assert not check_password("", "x") and not check_password("no hash", "x")
    costs = hash_password("a password").split("$")[:4]
    assert passwords._NOBODY.split("$")[:4] == costs, "whether there is such a user cannot be told by the time"
    assert hash_password("same") != hash_password("same"), "salted"


# --- the audit topic -------------------------------------------------------------------------------------------------

class Kernel:
    """What the audit asks of a kernel."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.placed: list[str] = []
        self.values: list[dict[str, Any]] = []

    def topic(self, name: str, tenant: str = "/") -> Any:
        return None

    def create_topic(self, name: str, **_: Any) -> None:
        if name in self.created:
            raise TopicExists(name)
        self.created.append(name)

    def place(self, address: str, tenant: str = "/") -> Any:
        self.placed.append(address)
        return address

    def append(self, messages: list[Any], owner: Any, token: Any, idempotency_key: str | None = None) -> None:
        self.values += [json.loads(value) for _, value, *_ in messages]


def test_an_audit_message() -> None:
    kernel, failures = Kernel(), list[str]()
    audit = Audit(kernel, lambda: 7, failures.append)                       # type: ignore[arg-type]
    audit.write(Author("a/b", "http", "192.0.2.1:5"), "user.created", {"user": "ann"})
    audit.write("root", "much", {"text": "x" * MAX_DETAILS_BYTES})
    assert kernel.created == ["audit"] and kernel.placed == ["$audit/a%2Fb", "$audit/root"]
    assert kernel.values[0] == {"by": "a/b", "door": "http", "peer": "192.0.2.1:5", "action": "user.created", "at": 7,
                                "details": {"user": "ann"}}
    assert list(kernel.values[1]["details"]) == ["left_out_bytes"] and not failures
    assert (kernel.values[1]["by"], kernel.values[1]["door"], kernel.values[1]["peer"]) == ("root", None, None)


def test_every_refusal_has_a_code() -> None:
    kinds = AccountError.__subclasses__()
    assert len({kind.code for kind in kinds}) == len(kinds) > 6


def test_changes_asked_for_together_do_not_take_the_last_administrator(rig: Administered) -> None:
    """Each of both rules could go while the other is there."""
    put(rig, "root")
    put(rig, "second")
    rules = [rig.did(lambda told, who=who: rig.administration.add_rule("root", {
        "who": f"user:{who}", "kind": "hub", "operations": ["administer"]}, told)) for who in ("root", "second")]
    told: list[Any] = []
    with rig.administration.together():
        for rule in rules:
            rig.administration.delete_rule("root", rule.id, told.append)
        assert told == []
    assert told[0] is None and isinstance(told[1], LastAdministrator)
    assert list(rig.accounts.rules) == [rules[1].id]
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: rig.administration.delete_rule("root", rules[1].id, told))


def test_where_the_database_fails_nothing_of_what_was_asked_together_is_done(rig: Administered) -> None:
    told: list[Any] = []
    with rig.administration.together():
        rig.administration.put_user("root", "bob", UserChanges(), told.append)
        rig.administration.put_user("root", "eve", UserChanges(), told.append)
        with rig.store._engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE users"))
    assert [type(answer) for answer in told] == [AccountsUnavailable] * 2 and not rig.accounts.users


def test_where_the_hub_makes_a_mistake_nobody_is_an_administrator_by_what_was_not_kept(
        rig: Administered, monkeypatch: pytest.MonkeyPatch) -> None:
    put(rig, "root")
    put(rig, "second")
    table = {"who": "user:root", "kind": "hub", "operations": ["administer"]}
    rule = rig.did(lambda told: rig.administration.add_rule("root", table, told))
    told: list[Any] = []
    with monkeypatch.context() as mistaken, rig.administration.together():
        mistaken.setattr(rig.store, "delete_rule", lambda id: 1 // 0)
        rig.administration.add_rule("root", {**table, "who": "user:second"}, told.append)
        rig.administration.delete_rule("root", rule.id, told.append)
    assert [type(answer) for answer in told] == [AccountsUnavailable] * 2 and list(rig.accounts.rules) == [rule.id]
    with pytest.raises(LastAdministrator):
        rig.did(lambda told: rig.administration.delete_rule("root", rule.id, told))


class Behind(Worker):
    """The hub hears of what was done when the test says so."""

    def __init__(self) -> None:
        super().__init__(at_once=True)
        self.outcomes: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        super().submit(job, lambda result, error: self.outcomes.append(partial(done, result, error)))

    def tell(self) -> None:
        while self.outcomes:
            self.outcomes.pop(0)()


def test_two_changes_at_once_do_not_take_the_last_administrator(rig: Administered) -> None:
    """Each of both could go while memory still has the other."""
    put(rig, "root", groups=frozenset(("admins",)))
    put(rig, "second", groups=frozenset(("admins",)))
    put(rig, "ruled")
    rule = rig.did(lambda told: rig.administration.add_rule("root", {
        "who": "user:ruled", "kind": "hub", "operations": ["administer"]}, told))
    worker = Behind()
    changing = Administration(rig.accounts, rig.store, replace(rig.outside, accounts=worker), rig.admission)
    told: list[Any] = []
    changing.delete_user("root", "second", told.append)
    changing.delete_rule("root", rule.id, told.append)
    changing.delete_user("root", "root", told.append)
    changing.put_user("root", "root", UserChanges(disabled=True), told.append)
    worker.tell()
    assert [type(answer) for answer in told] == [type(None), type(None), LastAdministrator, LastAdministrator]
    changing.delete_user("root", "root", told.append)
    worker.tell()
    assert isinstance(told[-1], LastAdministrator)


def test_the_last_administrator_by_a_rule_stays_while_a_user_goes(rig: Administered) -> None:
    put(rig, "root", groups=frozenset(("admins",)))
    put(rig, "ruled")
    rule = rig.did(lambda told: rig.administration.add_rule("root", {
        "who": "user:ruled", "kind": "hub", "operations": ["administer"]}, told))
    worker = Behind()
    changing = Administration(rig.accounts, rig.store, replace(rig.outside, accounts=worker), rig.admission)
    told: list[Any] = []
    changing.delete_user("root", "root", told.append)
    changing.delete_rule("root", rule.id, told.append)
    worker.tell()
    assert told[0] is None and isinstance(told[1], LastAdministrator)


def test_a_user_that_is_made_twice_at_once_is_made_and_changed(rig: Administered) -> None:
    worker = Behind()
    changing = Administration(rig.accounts, rig.store, replace(rig.outside, accounts=worker), rig.admission)
    told: list[Any] = []
    changing.put_user("root", "ann", UserChanges(groups=frozenset(("ops",))), told.append)
    changing.put_user("root", "ann", UserChanges(disabled=True), told.append)
    changing.delete_user("root", "ann", told.append)
    changing.put_user("root", "ann", UserChanges(), told.append)
    worker.tell()
    assert told[1].disabled and told[1].groups == {"ops"} and told[2] is None and not told[3].groups
    assert rig.accounts.users["ann"] == rig.store.read()[0][0] == told[3]
