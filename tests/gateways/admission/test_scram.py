"""SCRAM by the vector of RFC 7677, by a client that does all of it, and by clients that cheat."""
from __future__ import annotations

import hashlib
import hmac
import stringprep
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.gateways.admission.accounts import ScramSecret
from gatehouse.gateways.admission.errors import LoginsFull, NotAuthenticated
from gatehouse.gateways.admission.passwords import SCRAM_ITERATIONS
from gatehouse.gateways.admission.principal import Principal
from gatehouse.gateways.admission.scram import HASHES, ForbiddenCharacter, ScramServer, make_secret, saslprep
from gatehouse.gateways.admission.throttle import DELAY_MAX_MS, FREE_OF_NETWORK, PROOFS_MAX
from tests.gateways.admission.kit import Rig

PEER = "203.0.113.7:50000"


class Client:
    """RFC 5802, 3, on the other side."""

    def __init__(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256", nonce: str = "rOprNGfwEbeRWgbNEkqO",
                 header: str = "n,,") -> None:
        self.hash = HASHES[mechanism]
        self.password = password
        self.header = header
        self.bare = f"n={user},r={nonce}"
        self.signed = ""
        self.salted = b""

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, answer: bytes, *, nonce: str | None = None, binding: str | None = None) -> bytes:
        parts = dict(part.split("=", 1) for part in answer.decode().split(","))
        self.salted = hashlib.pbkdf2_hmac(self.hash, self.password.encode(), b64decode(parts["s"]), int(parts["i"]))
        key = hmac.digest(self.salted, b"Client Key", self.hash)
        bound = b64encode((self.header if binding is None else binding).encode()).decode()
        without = f"c={bound},r={parts['r'] if nonce is None else nonce}"
        self.signed = f"{self.bare},{answer.decode()},{without}"
        signature = hmac.digest(hashlib.new(self.hash, key).digest(), self.signed.encode(), self.hash)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return f"{without},p={b64encode(proof).decode()}".encode()

    def believes(self, final: bytes) -> bool:
        key = hmac.digest(self.salted, b"Server Key", self.hash)
        return final == b"v=" + b64encode(hmac.digest(key, self.signed.encode(), self.hash))


@pytest.fixture(scope="module")
def rig() -> Rig:
    made = Rig()
    made.add("ann", "right password")
    made.add("a,b=c", "right password")
    made.add("off", "right password", disabled=True)
    made.add("keys")
    return made


def test_the_vector_of_rfc_7677() -> None:
    secret = make_secret("SCRAM-SHA-256", b"pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    server = ScramServer("SCRAM-SHA-256", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", lambda user: secret, Principal,
                         lambda user: NotAuthenticated("no"))
    assert server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final, who = server.final(b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                              b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" and who.name == "user"


@pytest.mark.parametrize("mechanism", sorted(HASHES))
@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=ann,"])
def test_a_login(rig: Rig, mechanism: str, header: str) -> None:
    server = rig.admission.scram("kafka", PEER, mechanism)
    client = Client("ann", "right password", mechanism, header=header)
    answer = server.first(client.first())
    assert SCRAM_ITERATIONS >= 4096 and f",i={SCRAM_ITERATIONS}".encode() in answer
    final, who = server.final(client.final(answer))
    assert client.believes(final) and who is rig.login("ann", "right password")


def test_names_are_encoded(rig: Rig) -> None:
    server, client = rig.admission.scram("kafka", PEER, "SCRAM-SHA-256"), Client("a=2Cb=3Dc", "right password")
    assert server.final(client.final(server.first(client.first())))[1].name == "a,b=c"


@pytest.mark.parametrize(("user", "password"), [
    ("ann", "wrong"), ("nobody", "right password"), ("off", "right password"), ("keys", "")])
def test_wrong_ones_fail_alike_and_at_the_end(rig: Rig, user: str, password: str) -> None:
    answers = []
    for _ in range(2):
        server = rig.admission.scram("kafka", f"{user}:1", "SCRAM-SHA-512")
        client = Client(user, password, "SCRAM-SHA-512")
        answers.append(server.first(client.first()))
        with pytest.raises(NotAuthenticated, match="^unknown user or wrong password$") as refused:
            server.final(client.final(answers[-1]))
        assert refused.value.delay_ms > 0
        rig.clock.advance(10_000)
    salts = {answer.split(b",")[1] for answer in answers}
    assert len(salts) == 1, "who does not exist keeps its salt, as who does"


def test_the_salt_of_nobody_is_as_the_salt_of_somebody() -> None:
    """Who asks twice, by another mechanism or after the next start does not learn whether there is such a user."""
    def salts(name: str) -> list[bytes]:
        found = []
        for own in (Rig(), restarted):
            own.accounts.users["ann"] = ann
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                server = own.admission.scram("kafka", PEER, mechanism)
                found.append(server.first(Client(name, "x", mechanism).first()).split(b",")[1])
        return found

    ann, restarted = Rig().add("ann", "right password"), Rig(chance=1000)
    for name in ("ann", "nobody"):
        first, other, *after = salts(name)
        assert first != other and after == [first, other], name


def test_a_replay_is_worth_nothing(rig: Rig) -> None:
    server, client = rig.admission.scram("kafka", "replay:1", "SCRAM-SHA-256"), Client("ann", "right password")
    final = client.final(server.first(client.first()))
    server.final(final)
    with pytest.raises(NotAuthenticated):
        server.final(final)
    again = rig.admission.scram("kafka", "replay:1", "SCRAM-SHA-256")
    again.first(client.first())
    with pytest.raises(NotAuthenticated, match="nonce"):
        again.final(final)


@pytest.mark.parametrize("first", [
    b"", b"n", b"n,,", b"n,,n=ann", b"n,,r=abcdefghij,n=ann", b"n,,n=ann,r=", b"n,,n=ann,r=short",
    b"n,,n=ann,r=with space",
    b"p=tls-unique,,n=ann,r=abcdefghij", b"x,,n=ann,r=abcdefghij", b"n,b=ann,n=ann,r=abcdefghij",
    b"\xff,,n=a,r=abcdefghij",
    b"n,a=bob,n=ann,r=abcdefghij", b"n,,m=ext,n=ann,r=abcdefghij", b"n,,n=a=2,r=abcdefghij", b"n,,n=a=2c,r=abcdefghij",
    b"n,,n=ann,r=" + b"x" * 5000, b"n,,n=a\x07b,r=abcdefghij"])
def test_first_messages_that_cannot_be(rig: Rig, first: bytes) -> None:
    server = rig.admission.scram("kafka", "first:1", "SCRAM-SHA-256")
    with pytest.raises(NotAuthenticated):
        server.first(first)
    with pytest.raises(NotAuthenticated):
        server.first(Client("ann", "right password").first())


@pytest.mark.parametrize(("nonce", "binding"), [
    ("", None), ("rOprNGfwEbeRWgbNEkqO", None), (None, "y,,"), (None, ""), (None, "n,,x")])
def test_final_messages_of_another_login(rig: Rig, nonce: str | None, binding: str | None) -> None:
    """Signed as they are: a nonce cut short, a channel binding that was downgraded on the way."""
    server, client = rig.admission.scram("kafka", "final:1", "SCRAM-SHA-256"), Client("ann", "right password")
    final = client.final(server.first(client.first()), nonce=nonce, binding=binding)
    with pytest.raises(NotAuthenticated, match="nonce|channel binding"):
        server.final(final)


def test_older_clients_of_librdkafka_put_their_nonce_before_the_nonce_again(rig: Rig) -> None:
    server, client = rig.admission.scram("kafka", "older:1", "SCRAM-SHA-256"), Client("ann", "right password")
    answer = server.first(client.first())
    told = answer.decode().partition(",")[0].removeprefix("r=")
    final, principal = server.final(client.final(answer, nonce=f"rOprNGfwEbeRWgbNEkqO{told}"))
    assert client.believes(final)
    assert principal.name == "ann"


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_garbage_raises_nothing_else(garbage: bytes) -> None:
    secret = ScramSecret(b"salt", 4096, bytes(32), bytes(32))

    def server() -> ScramServer:
        return ScramServer("SCRAM-SHA-256", "server", lambda user: secret, Principal,
                           lambda user: NotAuthenticated("no"))

    with pytest.raises(NotAuthenticated):
        server().first(garbage)
    begun = server()
    begun.first(b"n,,n=ann,r=abcdefghij")
    with pytest.raises(NotAuthenticated):
        begun.final(garbage)
    begun = server()
    begun.first(b"n,,n=ann,r=abcdefghij")
    with pytest.raises(NotAuthenticated):
        begun.final(b"c=biws,r=abcdefghijserver,p=" + garbage)


def begun(own: Rig, password: str, peer: str = "slow:1", user: str = "ann") -> tuple[ScramServer, bytes]:
    """A login up to its final message."""
    server, client = own.admission.scram("kafka", peer, "SCRAM-SHA-256"), Client(user, password)
    return server, client.final(server.first(client.first()))


def waits(own: Rig, user: str, peer: str = "slow:1") -> int:
    """How long the answer to the right password is held back."""
    server, final = begun(own, "right password", peer, user)
    server.final(final)
    return server.wait_ms


def test_failures_slow_scram_too() -> None:
    """Whoever has the right password is let in late, as with any other mechanism; the first are, of those who try."""
    own = Rig()
    own.add("ann", "right password")
    for _ in range(3):
        server, final = begun(own, "wrong")
        with pytest.raises(NotAuthenticated):
            server.final(final)
    server, final = begun(own, "right password")
    assert server.final(final)[1].name == "ann" and 0 < server.wait_ms <= 400
    own.clock.advance(server.wait_ms)
    assert server.accepted().name == "ann"
    server, final = begun(own, "right password")
    assert server.final(final)[1].name == "ann" and server.wait_ms == 0, "a success forgets"


def test_who_is_disabled_while_it_waits_is_not_let_in() -> None:
    own = Rig()
    own.add("ann", "right password")
    server, final = begun(own, "wrong")
    with pytest.raises(NotAuthenticated):
        server.final(final)
    server, final = begun(own, "right password")
    server.final(final)
    assert server.wait_ms
    own.add("ann", "right password", disabled=True)
    with pytest.raises(NotAuthenticated):
        server.accepted()


def test_many_at_once_are_few_guesses() -> None:
    """Who has a hundred logins begin before the first of them fails is slowed all the same."""
    own = Rig()
    own.add("ann", "right password")
    guesses = [begun(own, "right password" if number == 50 else f"wrong {number}") for number in range(100)]
    for server, final in guesses:
        with pytest.raises(NotAuthenticated):
            server.final(final)
    own.clock.advance(10_000)
    server, final = begun(own, "right password")
    assert server.final(final)[1].name == "ann"


def test_one_password_tried_with_every_name_slows_the_network_and_those_who_are_known_there_not() -> None:
    own = Rig()
    for name in ("ann", "bob"):
        own.add(name, "right password")
    server, final = begun(own, "right password")
    server.final(final)                                   # ann is known there
    for number in range(2 * FREE_OF_NETWORK):
        server, final = begun(own, "wrong", user=f"user {number}")
        with pytest.raises(NotAuthenticated):
            server.final(final)
    assert waits(own, "ann") == 0 < waits(own, "bob")
    assert waits(own, "bob", "198.51.100.1:1") == 0


def test_proofs_that_wait_are_bounded_and_what_is_not_looked_at_has_not_failed() -> None:
    own = Rig()
    own.add("ann", "right password")
    failed = FREE_OF_NETWORK + 1 + PROOFS_MAX             # looked at at once, and held back
    for number in range(failed):
        server, final = begun(own, "wrong", user=f"user {number}")
        with pytest.raises(NotAuthenticated):
            server.final(final)
    server, final = begun(own, "right password")
    with pytest.raises(LoginsFull):
        server.final(final)
    assert own.admission.trace.counts["kafka", "not_authenticated"] == failed
    own.clock.advance(DELAY_MAX_MS)
    server, final = begun(own, "right password")
    assert server.final(final)[1].name == "ann"


def test_a_password_that_changes_between_the_messages() -> None:
    own = Rig()
    own.add("ann", "right password")
    server, client = own.admission.scram("kafka", PEER, "SCRAM-SHA-256"), Client("ann", "right password")
    final = client.final(server.first(client.first()))
    own.add("ann", "other password")
    with pytest.raises(NotAuthenticated):
        server.final(final)


def test_an_unknown_mechanism(rig: Rig) -> None:
    with pytest.raises(ValueError, match="SCRAM-SHA-1"):
        rig.admission.scram("kafka", PEER, "SCRAM-SHA-1")


@pytest.mark.parametrize(("text", "prepared"), [
    ("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b"),
    ("e\u0301", "\u00e9")])
def test_saslprep_by_the_examples_of_rfc_4013(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "\u0627a"])
def test_what_saslprep_prohibits(text: str) -> None:
    with pytest.raises(ForbiddenCharacter):
        saslprep(text)


@given(st.text(max_size=10))
def test_saslprep_is_done_once(text: str) -> None:
    if any(stringprep.in_table_a1(one) for one in text):
        return                                # unassigned in Unicode 3.2: normalised by a newer table
    try:
        once = saslprep(text)
    except ForbiddenCharacter:
        return
    assert saslprep(once) == once
