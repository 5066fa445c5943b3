"""JWTs: good ones, and every way in which one can be bad; the issuer's key set, and when it is read again."""
from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gatehouse.gateways.admission.administration import UserChanges
from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.admission.tokens import JwtSettings, KeySet
from gatehouse.kernel.circuit_breaker import CircuitState
from tests.gateways.admission.kit import Administered, Rig

WHERE = "/keys.json"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
ALGORITHMS = {"r": (RSA, "RS256"), "e": (EC, "ES256"), "d": (ED, "EdDSA")}


def jwk(kid: str, key: Any, **more: Any) -> dict[str, Any]:
    kinds = {"RS256": jwt.algorithms.RSAAlgorithm, "ES256": jwt.algorithms.ECAlgorithm,
             "EdDSA": jwt.algorithms.OKPAlgorithm}
    algorithm = next(name for known, name in ALGORITHMS.values() if type(known) is type(key))
    return {**json.loads(kinds[algorithm].to_jwk(key.public_key())), "kid": kid, **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


ALL = key_set(*[jwk(kid, key) for kid, (key, _) in ALGORITHMS.items()])


def rig(documents: dict[str, bytes] | None = None, **settings: Any) -> Rig:
    made = Rig(documents={WHERE: ALL} if documents is None else documents)
    made.admission.configure((), {}, JwtSettings(WHERE, "https://issuer", "gatehouse", **settings))
    return made


def token(made: Rig, kid: str = "r", *, key: Any = None, algorithm: str | None = None, header: Any = None, **claims: Any
          ) -> str:
    now_s = made.clock.ms // 1000
    known, usual = ALGORITHMS[kid]
    payload = {"iss": "https://issuer", "aud": "gatehouse", "sub": "ann", "iat": now_s, "exp": now_s + 600, **claims}
    return jwt.encode({name: value for name, value in payload.items() if value is not None}, key or known,
                      algorithm or usual, headers={"kid": kid} if header is None else header)


@pytest.mark.parametrize("kid", sorted(ALGORITHMS))
def test_a_token_is_its_users(kid: str) -> None:
    made = rig()
    text = token(made, kid)
    who = made.login(token=text)
    assert (who.name, who.tenant, made.admission.groups(who)) == ("ann", "/", frozenset())
    assert made.login(token=token(made, kid, aud=["elsewhere", "gatehouse"])).name == "ann"
    assert who.expires_ms == (made.clock.ms // 1000 + 630) * 1000
    assert made.login("ann", text) is who and made.login("", text) is who, "in the password's place too"
    with pytest.raises(NotAuthenticated):
        made.login("bob", text)


BAD: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1_600_000_000}, "just expired": {"exp": 1_700_000_000 - 31}, "not yet": {"nbf": 1_700_000_100},
    "from the future": {"iat": 1_700_000_100}, "no expiry": {"exp": None}, "expiry is a text": {"exp": "never"},
    "expiry is true": {"exp": True}, "endless": {"exp": 1e300}, "other issuer": {"iss": "https://evil"},
    "no issuer": {"iss": None}, "other audience": {"aud": "elsewhere"}, "no audience": {"aud": None},
    "no user": {"sub": None}, "user is a number": {"sub": 7}, "empty user": {"sub": ""},
    "long user": {"sub": "x" * 300},
    "nobody": {"sub": "anonymous"}, "control": {"sub": "a\nb"},
    "every tenant": {"org": "*"}, "control in the tenant": {"org": "a\nb"},
    "deep": {"sub": json.loads("[" * 400 + "]" * 400)}, "other key": {"key": OTHER},
    "a critical extension": {"header": {"kid": "r", "crit": ["exp"], "exp": 1}},
    "other audiences": {"aud": ["elsewhere", "gatehouse2"]},
    "unknown kid": {"header": {"kid": "x"}}, "no kid among several": {"header": {}},
    "an algorithm that is not allowed": {"algorithm": "RS512"}, "kid of another type": {"header": {"kid": "e"}},
    "groups are numbers": {"groups": [1]}, "too many groups": {"groups": ["x"] * 300}, "tenant is a number": {"org": 7}}


@pytest.mark.parametrize("what", sorted(BAD))
def test_bad_tokens(what: str) -> None:
    made = rig(groups_claim="groups", tenant_claim="org")
    text = token(made, **BAD[what])
    with pytest.raises(NotAuthenticated) as refused:
        made.login(token=text)
    assert text not in str(refused.value) and not isinstance(refused.value.__cause__, Exception)


def test_neither_none_nor_a_public_key_as_secret() -> None:
    made = rig()
    good = token(made)
    unsigned = jwt.encode(jwt.decode(good, options={"verify_signature": False}), None, "none", headers={"kid": "r"})
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body, _ = good.split(".")
    forged_head = urlsafe_b64encode(b'{"alg":"HS256","kid":"r","typ":"JWT"}').rstrip(b"=").decode()
    mac = urlsafe_b64encode(hmac.digest(public, f"{forged_head}.{body}".encode(), "sha256")).rstrip(b"=").decode()
    for text in (unsigned, f"{forged_head}.{body}.{mac}", f"{head}.{body}.", f"{head}.{body}", "a.b.c", "..",
                 "x" * 20_000, f"{head}..{good.split('.')[2]}", good + "x"):
        with pytest.raises(NotAuthenticated):
            made.login(token=text)


def test_algorithms_are_checked_when_they_are_configured() -> None:
    for name in ("none", "HS256", "RS255", ""):
        with pytest.raises(ValueError, match="algorithms"):
            JwtSettings("x", "i", "a", algorithms=(name,))


def test_where_a_key_set_may_be_read() -> None:
    for url in ("http://issuer/keys", "http://127.0.0.1.evil.example/keys", "HTTP://issuer/keys", "ftp://issuer/keys",
                "http://localhost:80@issuer/keys", "http://127.0.0.1:@issuer/keys", "https://ann@issuer/keys",
                "https:///keys", "file:///etc/keys", "https://[::1/keys"):
        with pytest.raises(ValueError, match="https|URL"):
            JwtSettings(url, "i", "a")
    for url in ("http://127.0.0.1:80/keys", "http://localhost/keys", "http://[::1]:80/keys", "HTTPS://issuer/keys",
                "keys.json", "/etc/keys.json"):
        JwtSettings(url, "i", "a")


def test_symmetric_keys_and_keys_that_encrypt_are_not_used() -> None:
    oct_key = {"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"}
    with pytest.raises(ValueError, match="no key"):
        KeySet(key_set(oct_key, jwk("r", RSA, use="enc"), jwk("q", RSA, alg="HS256"), {"kty": "RSA", "kid": "x"}))
    for document in (b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [7]}', key_set(*[oct_key] * 101)):
        with pytest.raises(ValueError):
            KeySet(document)


ODD: dict[str, dict[str, Any]] = {
    "a private one": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(OTHER)),
    "for encrypting": {**jwk("x", OTHER), "key_ops": ["encrypt", "wrapKey"]},
    "operations that are no list": {**jwk("x", OTHER), "key_ops": "verify"},
    "an id that is a list": {**jwk("x", OTHER), "kid": ["x"]},
    "an algorithm that is a list": {**jwk("x", OTHER), "alg": ["RS256"]},
    "a type that is a list": {**jwk("x", OTHER), "kty": ["RSA"]},
    "no key at all": {"kid": "x"}}


@pytest.mark.parametrize("what", sorted(ODD))
def test_a_key_that_is_no_use_is_passed_over_and_the_others_are_used(what: str) -> None:
    made = rig({WHERE: key_set({"kid": "x", **ODD[what]}, jwk("r", RSA))})
    assert made.login(token=token(made)).name == "ann"
    with pytest.raises(NotAuthenticated):
        made.login(token=token(made, key=OTHER, header={"kid": "x"}))


def test_a_short_key_proves_nothing() -> None:
    """RFC 7518, 3.3: 2048 bits or more."""
    short = rsa.generate_private_key(65537, 1024)
    with pytest.raises(ValueError, match="no key"):
        KeySet(key_set(jwk("x", short)))


def test_keys_of_several_types_may_have_one_id() -> None:
    """RFC 7517, 4.5."""
    made = rig({WHERE: key_set(jwk("1", RSA), jwk("1", EC), jwk("2", ED))})
    for kid in ("r", "e"):
        assert made.login(token=token(made, kid, header={"kid": "1"})).name == "ann"
    with pytest.raises(NotAuthenticated):
        made.login(token=token(made, "d", header={"kid": "1"}))


def test_a_key_that_was_taken_out_of_the_set_signs_no_more() -> None:
    """Not even tokens that were seen before: whoever stole the key chose when they expire."""
    documents = {WHERE: ALL}
    made = rig(documents, refresh_s=3600)
    text = token(made, exp=made.clock.ms // 1000 + 10**9)
    made.login(token=text)
    documents[WHERE] = key_set(jwk("e", EC))
    made.clock.advance(3_601_000)
    with pytest.raises(NotAuthenticated):
        made.login(token=text)


def test_a_reload_reads_the_key_set_again() -> None:
    """Whoever takes a stolen key out of the set does not wait for an hour."""
    documents = {WHERE: ALL}
    made = rig(documents)
    text = token(made)
    made.login(token=text)
    documents[WHERE] = key_set(jwk("e", EC))
    made.admission.configure((), {}, JwtSettings(WHERE, "https://issuer", "gatehouse"))
    with pytest.raises(NotAuthenticated):
        made.login(token=text)
    assert made.login(token=token(made, "e")).name == "ann"


def test_groups_and_tenant_come_from_claims_and_from_the_account() -> None:
    made = rig(groups_claim="groups", tenant_claim="org", user_claim="email")
    made.add("ann", tenants=frozenset(("blue",)), groups=frozenset(("ops",)))
    who = made.login(token=token(made, email="ann", groups=["night"], org="red"))
    assert (who.tenant, who.tenants, made.admission.groups(who)) == ("red", {"/", "blue", "red"}, {"night", "ops"})
    assert made.admission.in_tenant(who, "blue").groups == {"night"}
    assert made.admission.groups(made.login(token=token(made, email="x", groups="a b"))) == {"a", "b"}
    made.add("off", disabled=True)
    with pytest.raises(NotAuthenticated):
        made.login(token=token(made, email="off"))


def test_an_account_that_has_expired_keeps_its_tokens_out() -> None:
    made = rig()
    text = token(made)
    assert made.login(token=text).name == "ann"
    made.add("ann", expires_ms=made.clock.ms + 1000)
    assert made.login(token=text).name == "ann"
    made.clock.advance(1000)
    with pytest.raises(NotAuthenticated):
        made.login(token=text)


def test_expiry_ends_an_open_connection() -> None:
    made = rig(leeway_s=0)
    ended: list[str] = []

    class RegisteredSession:
        def on_principal_ended(self, reason: str) -> None:
            ended.append(reason)

        def on_rights_changed(self) -> None: ...

    text = token(made)
    made.admission.register(made.login(token=text), "mqtt", RegisteredSession())
    made.clock.advance(600_000)
    assert ended == ["what it logged in with has expired"]
    with pytest.raises(NotAuthenticated):
        made.login(token=text)


@pytest.mark.parametrize(("changes", "why"), [
    ({"disabled": True}, "the user is disabled"), ({"tenant": "blue"}, "the user has left a tenant")])
def test_an_account_that_keeps_its_tokens_out_ends_what_they_have_opened(
        tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    """There was none of this name before."""
    made = Administered(f"sqlite:///{tmp_path / 'catalogue.sqlite'}", documents={WHERE: ALL})
    made.admission.configure((), {}, JwtSettings(WHERE, "https://issuer", "gatehouse"))
    ended: list[str] = []

    class RegisteredSession:
        def on_principal_ended(self, reason: str) -> None:
            ended.append(reason)

        def on_rights_changed(self) -> None: ...

    made.admission.register(made.login(token=token(made)), "mqtt", RegisteredSession())
    made.did(lambda told: made.administration.put_user("root", "ann", UserChanges(**changes), told))
    made.clock.advance(0)
    assert ended == [why]


def test_the_key_set_is_read_again_for_a_new_key_but_not_for_every_token() -> None:
    documents = {WHERE: key_set(jwk("r", RSA))}
    made = rig(documents, refetch_s=1000)
    made.login(token=token(made))
    assert made.fetched == 1
    for _ in range(20):
        with pytest.raises(NotAuthenticated):
            made.login(token=token(made, "e"))
        made.clock.advance(100)
    assert made.fetched == 1, "the minimum interval holds"
    documents[WHERE] = ALL
    made.clock.advance(1_000_000)
    assert made.login(token=token(made, "e")).name == "ann" and made.fetched == 2


def test_a_key_set_that_cannot_be_read_leaves_the_old_one() -> None:
    documents: dict[str, bytes] = {}
    made = rig(documents, refetch_s=60, refresh_s=3600)
    with pytest.raises(NotAuthenticated):
        made.login(token=token(made))
    documents[WHERE] = ALL
    made.clock.advance(61_000)
    made.login(token=token(made))
    documents[WHERE] = b"<html>"
    made.clock.advance(3_600_000)
    made.login(token=token(made, "e"))
    assert made.admission.statistics()["jwks_failures"] == 2


def test_tokens_wait_for_the_first_key_set_and_are_answered_together() -> None:
    made = Rig(documents={WHERE: ALL})
    made.fetching.at_once = False
    made.admission.configure((), {}, JwtSettings(WHERE, "https://issuer", "gatehouse"))
    told = [made.ask(token=token(made, kid)) for kid in ALGORITHMS]
    assert told == [[], [], []] and len(made.fetching.jobs) == 1
    made.fetching.work()
    assert all(one[0].name == "ann" for one in told)


def test_a_reload_with_another_issuer_forgets_what_was_verified() -> None:
    made = rig()
    text = token(made)
    made.login(token=text)
    made.admission.configure((), {}, JwtSettings(WHERE, "https://other", "gatehouse"))
    with pytest.raises(NotAuthenticated):
        made.login(token=text)
    made.admission.configure((), {}, None)
    with pytest.raises(NotAuthenticated, match="no other tokens"):
        made.login(token=text)


def test_an_issuer_that_is_down_is_asked_once_a_minute_then_less_and_people_have_it_asked_at_once() -> None:
    documents: dict[str, bytes] = {}
    made = rig(documents, refetch_s=1, refresh_s=3600)
    made.clock.advance(10_000)
    assert made.fetched == 3                                     # then the circuit opens
    for probes in (4, 4, 5, 5, 5, 5, 6):                         # after one minute, two, four
        made.clock.advance(60_000)
        assert made.fetched == probes
    with pytest.raises(NotAuthenticated):
        made.login(token=token(made))
    assert made.fetched == 6, "tokens do not have it asked"
    documents[WHERE] = ALL
    made.admission.issuer_circuits.whole.close()
    made.admission.on_issuer_circuit()
    assert made.login(token=token(made)).name == "ann" and made.fetched == 7


MIRRORS = ("https://mirror-1.example/keys.json", "https://mirror-2.example/keys.json", "https://mirror-3.example/keys.json")


def test_an_address_of_the_key_set_that_fails_is_followed_by_the_next_at_once() -> None:
    made = rig({MIRRORS[0]: ALL}, jwks_mirrors=MIRRORS[:1])
    assert made.login(token=token(made)).name == "ann"
    assert made.fetched == 2 and made.admission.statistics()["jwks_failures"] == 1


def test_an_address_that_goes_on_failing_is_isolated_and_no_more_than_one_of_four() -> None:
    documents = {MIRRORS[1]: ALL, MIRRORS[2]: ALL}
    made = rig(documents, jwks_mirrors=MIRRORS, refetch_s=60, refresh_s=60)
    for _ in range(30):
        made.clock.advance(60_000)
    states = [circuit.state for circuit in made.admission.issuer_circuits.each]
    assert states.count(CircuitState.CLOSED) == 3 and states[2:] == [CircuitState.CLOSED] * 2
    assert made.login(token=token(made)).name == "ann"
    assert made.admission.issuer_circuits.whole.state is CircuitState.CLOSED


def test_when_all_addresses_fail_one_is_tried_at_a_time_and_the_first_that_answers_is_enough() -> None:
    documents: dict[str, bytes] = {}
    made = rig(documents, jwks_mirrors=MIRRORS, refetch_s=1, refresh_s=3600)
    made.clock.advance(60_000)
    asked = made.fetched
    assert made.admission.issuer_circuits.whole.state is not CircuitState.CLOSED
    made.clock.advance(120_000)
    assert 1 <= made.fetched - asked <= 2, "a probe a minute, whatever addresses there are"
    documents |= dict.fromkeys((WHERE, *MIRRORS), ALL)
    made.clock.advance(600_000)
    assert made.login(token=token(made)).name == "ann"
    assert made.admission.issuer_circuits.whole.state is CircuitState.CLOSED


@pytest.mark.parametrize("jwks, mirrors", [
    (MIRRORS[0], MIRRORS[:1]), (WHERE, ("http://mirror.example/keys.json",)), (WHERE, ("keys.json",)),
    (WHERE, tuple(f"https://mirror-{number}.example/" for number in range(10)))])
def test_mirrors_that_cannot_be(jwks: str, mirrors: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        JwtSettings(jwks, "https://issuer", "gatehouse", jwks_mirrors=mirrors)
