"""SASL logins: every state, every wrong turn, and logging in again (KIP-43, KIP-152, KIP-368)."""
from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from gatehouse.gateways.kafka.login import MAX_TOKEN_BYTES, MECHANISMS, SaslFault, read_bearer, read_plain
from tests.gateways.accounts import KnownUsers
from tests.gateways.kafka.batches import batch
from tests.gateways.kafka.fakes import NOW_MS, Peer
from tests.gateways.kafka.judge import decoded, fetch, framed, produce

PLAIN = b"\0ada\0lovelace"
BEARER = b"n,,\x01auth=Bearer header.ada.signature\x01\x01"


def closed_peer(**settings: Any) -> Peer:
    """One that nobody enters without a login."""
    return Peer(admission=KnownUsers, allow_anonymous=False, **settings)


def admission_of(peer: Peer) -> KnownUsers:
    found = peer.services.admission
    assert isinstance(found, KnownUsers)
    return found


def handshake(peer: Peer, mechanism: str = "PLAIN", version: int = 1) -> Any:
    frame, = peer.send(framed(SaslHandshakeRequest(version=version, mechanism=mechanism), 1))
    return decoded(SaslHandshakeResponse, version, frame, 1)


def authenticate(peer: Peer, message: bytes, version: int = 2) -> Any:
    frame, = peer.send(framed(SaslAuthenticateRequest(version=version, auth_bytes=message), 2))
    return decoded(SaslAuthenticateResponse, version, frame, 2)


def may_ask(peer: Peer) -> bool:
    frames = peer.send(framed(MetadataRequest(version=5, topics=[]), 3))
    return bool(frames) and not peer.link.closed


def test_nothing_but_api_versions_and_sasl_is_answered_before_the_login() -> None:
    peer = closed_peer()
    assert peer.send(framed(ApiVersionsRequest(version=0), 9))
    assert peer.send(framed(MetadataRequest(version=5, topics=[]), 3)) == []
    assert peer.link.reason == "not_authenticated: credentials are needed"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_password(version: int) -> None:
    peer = closed_peer()
    answer = handshake(peer)
    assert (answer.error_code, answer.mechanisms) == (0, list(MECHANISMS))
    told = authenticate(peer, PLAIN, version)
    assert (told.error_code, told.auth_bytes) == (0, b"")
    assert may_ask(peer) and peer.session.describe()["user"] == "ada"


def test_messages_in_frames_of_their_own_after_a_handshake_of_version_0() -> None:
    peer = closed_peer()
    assert handshake(peer, version=0).error_code == 0
    peer.session.handle_data(struct.pack(">i", len(PLAIN)) + PLAIN)
    assert peer.link.take() == b"\0\0\0\0"
    assert may_ask(peer)


def test_a_wrong_password_in_a_frame_of_its_own_closes_the_connection() -> None:
    peer = closed_peer()
    handshake(peer, version=0)
    peer.session.handle_data(b"\0\0\0\x0a\0ada\0wrong")
    assert peer.link.take() == b"" and peer.link.closed


def test_a_wrong_password_is_told_and_the_connection_closed() -> None:
    peer = closed_peer()
    handshake(peer)
    told = authenticate(peer, b"\0ada\0babbage")
    assert told.error_code == 58
    assert told.error_message == "Authentication failed: Invalid username or password"
    assert peer.link.closed and "babbage" not in peer.link.reason


def test_a_token_and_the_challenge_of_a_bad_one() -> None:
    peer = closed_peer()
    handshake(peer, "OAUTHBEARER")
    assert authenticate(peer, BEARER).error_code == 0
    assert may_ask(peer)
    bad = closed_peer()
    handshake(bad, "OAUTHBEARER")
    challenge = authenticate(bad, BEARER.replace(b"ada", b"eve"))
    assert (challenge.error_code, challenge.auth_bytes) == (0, b'{"status": "invalid_token"}')
    assert not bad.link.closed, "RFC 7628, 3.2.3: the client answers the challenge first"
    told = authenticate(bad, b"\x01")
    assert told.error_code == 58 and bad.link.closed


@pytest.mark.parametrize("answer", [b"\x01", rb"\x01"])
def test_whoever_answers_the_challenge_is_told_why_his_token_is_not_good(answer: bytes) -> None:
    """Sarama answers with four characters, backslash to digit, where RFC 7628 has one byte."""
    peer = closed_peer()
    handshake(peer, "OAUTHBEARER")
    authenticate(peer, BEARER.replace(b"n,,", b"n,a=bob,"))
    assert authenticate(peer, answer).error_message == "the token is another user's"


def test_a_token_of_somebody_else_than_the_client_says() -> None:
    peer = closed_peer()
    handshake(peer, "OAUTHBEARER")
    assert authenticate(peer, BEARER.replace(b"n,,", b"n,a=bob,")).auth_bytes == b'{"status": "invalid_token"}'


def test_a_mechanism_that_is_not_offered() -> None:
    peer = closed_peer(sasl_mechanisms=("SCRAM-SHA-512",))
    answer = handshake(peer, "PLAIN")
    assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-512"])
    assert peer.link.closed


def test_a_message_without_a_handshake() -> None:
    peer = closed_peer()
    assert authenticate(peer, PLAIN).error_code == 34
    assert peer.link.closed


def test_two_handshakes() -> None:
    peer = closed_peer()
    handshake(peer)
    again = handshake(peer)
    assert (again.error_code, again.mechanisms) == (34, [])
    assert peer.link.closed


def test_another_request_in_the_middle_of_a_login_closes_the_connection() -> None:
    peer = closed_peer()
    handshake(peer)
    assert peer.send(framed(MetadataRequest(version=5, topics=[]), 3)) == []
    assert peer.link.reason == "malformed: Metadata during SASL authentication"


def test_what_is_sent_behind_a_login_waits_for_admission() -> None:
    peer = closed_peer()
    admission_of(peer).late = True
    handshake(peer)
    login = framed(SaslAuthenticateRequest(version=2, auth_bytes=PLAIN), 2)
    assert peer.send(login + framed(MetadataRequest(version=5, topics=[]), 3)) == []
    assert peer.link.paused
    admission_of(peer).tell()
    first, second = peer.link.frames()
    assert decoded(SaslAuthenticateResponse, 2, first, 2).error_code == 0
    assert decoded(MetadataResponse, 5, second, 3)
    assert not peer.link.paused


def test_where_too_many_wait_a_client_is_cut_off_and_not_told_that_its_password_is_wrong() -> None:
    peer = closed_peer()
    admission_of(peer).full = True
    handshake(peer)
    assert peer.send(framed(SaslAuthenticateRequest(version=2, auth_bytes=PLAIN), 2)) == []
    assert peer.link.closed and peer.link.reason.startswith("busy: ")


def test_a_client_that_goes_while_it_is_checked() -> None:
    peer = closed_peer()
    admission_of(peer).late = True
    handshake(peer)
    peer.send(framed(SaslAuthenticateRequest(version=2, auth_bytes=PLAIN), 2))
    gone, = admission_of(peer).gone
    assert not gone()
    peer.session.handle_closed()
    assert gone()
    admission_of(peer).tell()
    assert admission_of(peer).registered == []


def test_a_login_that_takes_too_long() -> None:
    peer = closed_peer(login_timeout_ms=1_000)
    handshake(peer)
    peer.wait(999)
    assert not peer.link.closed
    peer.wait(1)
    assert peer.link.reason.startswith("login_timeout")


def test_a_connection_that_says_nothing_is_closed_whether_a_login_is_needed_or_not() -> None:
    for peer in (closed_peer(login_timeout_ms=1_000), Peer(login_timeout_ms=1_000)):
        peer.wait(999)
        assert not peer.link.closed
        peer.wait(1)
        assert peer.link.reason.startswith("login_timeout")
    says_half, speaks = Peer(login_timeout_ms=1_000), Peer(login_timeout_ms=1_000)
    says_half.send(framed(ApiVersionsRequest(version=0), 9)[:-1])
    speaks.send(framed(ApiVersionsRequest(version=0), 9))
    says_half.wait(1_000)
    speaks.wait(10_000)
    assert says_half.link.closed and not speaks.link.closed


def test_a_client_that_asks_for_nothing_any_more_is_disconnected() -> None:
    peer = Peer(idle_timeout_ms=60_000)
    for _ in range(3):
        assert may_ask(peer)
        peer.wait(59_999)
    peer.wait(1)
    assert peer.link.reason.startswith("idle_timeout")
    stays = Peer(idle_timeout_ms=0)
    assert may_ask(stays)
    stays.wait(1 << 40)
    assert not stays.link.closed


def test_a_client_that_waits_for_an_answer_is_not_idle() -> None:
    peer = closed_peer(idle_timeout_ms=1_000)
    admission_of(peer).late = True
    handshake(peer)
    peer.send(framed(SaslAuthenticateRequest(version=2, auth_bytes=PLAIN), 2))
    peer.wait(5_000)
    assert not peer.link.closed
    admission_of(peer).tell()
    peer.wait(999)
    assert not peer.link.closed
    peer.wait(1)
    assert peer.link.reason.startswith("idle_timeout")


def test_a_login_without_end() -> None:
    """A client that answers the challenge with anything else, again and again."""
    peer = closed_peer()
    handshake(peer, "OAUTHBEARER")
    authenticate(peer, BEARER.replace(b"ada", b"eve"))
    assert authenticate(peer, b"\x02").error_code == 58
    assert peer.link.closed


def test_a_frame_before_the_login_is_small() -> None:
    peer = closed_peer()
    peer.session.handle_data(struct.pack(">i", MAX_TOKEN_BYTES + 1))
    assert peer.link.reason.startswith("malformed")
    after = closed_peer()
    handshake(after)
    authenticate(after, PLAIN)
    after.session.handle_data(struct.pack(">i", MAX_TOKEN_BYTES + 1))
    assert not after.link.closed


# ---- again (KIP-368)

def test_a_session_ends_with_the_token_unless_the_client_logs_in_again() -> None:
    peer = closed_peer()
    admission_of(peer).expires_ms = NOW_MS + 60_000
    handshake(peer, "OAUTHBEARER")
    assert authenticate(peer, BEARER).session_lifetime_ms == 60_000
    peer.wait(50_000)
    admission_of(peer).expires_ms = NOW_MS + 120_000
    assert handshake(peer, "OAUTHBEARER").error_code == 0
    assert authenticate(peer, BEARER).session_lifetime_ms == 70_000
    peer.wait(60_000)
    assert may_ask(peer)
    peer.wait(10_000)
    assert peer.link.reason.startswith("session_expired")


def test_the_longest_session_is_a_setting() -> None:
    peer = closed_peer(max_session_ms=5_000)
    handshake(peer)
    assert authenticate(peer, PLAIN).session_lifetime_ms == 5_000
    peer.wait(5_000)
    assert peer.link.closed


@pytest.mark.parametrize("ends", [False, True])
def test_who_has_begun_to_log_in_again_has_the_time_of_a_login(ends: bool) -> None:
    """librdkafka does so while a fetch waits, whose answer goes before those of the login."""
    peer = closed_peer(max_session_ms=5_000, login_timeout_ms=3_000)
    handshake(peer)
    authenticate(peer, PLAIN)
    peer.wait(4_500)
    assert handshake(peer).error_code == 0
    peer.wait(2_999)
    assert not peer.link.closed
    if ends:
        assert authenticate(peer, PLAIN).session_lifetime_ms == 5_000
        peer.wait(4_999)
        assert may_ask(peer)
    peer.wait(1)
    assert peer.link.reason.startswith("session_expired" if ends else "login_timeout")


def test_a_fetch_waits_no_longer_than_its_client_may_with_its_next_login() -> None:
    """Clients log in again behind the answer that they wait for."""
    peer = closed_peer(decision=lambda *asked: True, max_session_ms=10_000)
    peer.kernel.create_topic("plant", partitions=1)
    peer.kernel.flush()
    handshake(peer)
    authenticate(peer, PLAIN)
    peer.wait(9_000)
    waiting = framed(fetch(12, {("plant", 0): 0}, max_wait_ms=30_000), 5)
    assert peer.send(waiting) == []
    assert peer.wait(599) == []
    assert len(peer.wait(1)) == 1
    assert peer.send(waiting) == [], "who does not log in again waits as ever"
    peer.wait(399)
    assert not peer.link.closed
    peer.wait(1)
    assert peer.link.reason.startswith("session_expired")


def test_what_is_on_its_way_to_the_disk_is_answered_to_who_logs_in_again() -> None:
    peer = closed_peer(decision=lambda *asked: True)
    handshake(peer)
    authenticate(peer, PLAIN)
    peer.kernel.create_topic("plant", partitions=1)
    peer.kernel.flush()
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    part = topic.DeleteRecordsPartition
    deletion = DeleteRecordsRequest(version=1, timeout_ms=1000, topics=[topic(version=1, name="plant", partitions=[
        part(version=1, partition_index=0, offset=0)])])
    login = [framed(SaslHandshakeRequest(version=1, mechanism="PLAIN"), 7),
             framed(SaslAuthenticateRequest(version=2, auth_bytes=PLAIN), 8)]
    assert peer.send(b"".join([framed(produce(9, {("plant", 0): batch(b"a")}), 5), framed(deletion, 6), *login])) == []
    peer.kernel.flush()
    produced, deleted, _, again = peer.link.frames()
    row = decoded(ProduceResponse, 9, produced, 5).responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset, row.log_start_offset) == (0, 0, 0)
    row = decoded(DeleteRecordsResponse, 1, deleted, 6).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (0, 0)
    assert decoded(SaslAuthenticateResponse, 2, again, 8).error_code == 0 and may_ask(peer)


def test_nobody_becomes_somebody_else() -> None:
    peer = closed_peer()
    handshake(peer)
    authenticate(peer, PLAIN)
    handshake(peer)
    told = authenticate(peer, b"\0bob\0builder")
    assert told.error_code == 58 and "Cannot change principals" in told.error_message
    assert peer.link.closed


def test_the_mechanism_stays() -> None:
    peer = closed_peer()
    handshake(peer)
    authenticate(peer, PLAIN)
    assert handshake(peer, "OAUTHBEARER").error_code == 34
    assert may_ask(peer), "what was logged in stays so"


def test_anonymous_clients_do_not_log_in_later() -> None:
    peer = Peer(admission=KnownUsers, allow_anonymous=True)
    assert may_ask(peer)
    assert handshake(peer).error_code == 34 and may_ask(peer)


def test_a_certificate_is_a_login() -> None:
    peer = closed_peer()
    peer.link.certificate = "ada"
    assert may_ask(peer) and peer.session.describe()["user"] == "ada"


def test_a_login_by_certificate_ends_with_it() -> None:
    peer = closed_peer()
    peer.link.certificate, peer.link.certificate_ends_ms = "ada", 123_000
    assert may_ask(peer)
    (principal, session), = admission_of(peer).registered
    session.on_principal_ended("what it logged in with has expired")
    assert principal.expires_ms == 123_000 and peer.link.reason.startswith("principal_ended: ")


def test_a_principal_that_ends_is_closed_and_leaves_its_registration_when_it_goes() -> None:
    peer = closed_peer()
    handshake(peer)
    authenticate(peer, PLAIN)
    (principal, session), = admission_of(peer).registered
    session.on_principal_ended("the user is disabled")
    assert principal.name == "ada"
    assert peer.link.reason == "principal_ended: the user is disabled"


@pytest.mark.parametrize("message", [
    b"", b"\0", b"\0\0", b"\0ada\0", b"\0\0lovelace", b"a\0b\0c\0d", b"\xff\0\xff\0\xff", b"bob\0ada\0lovelace"])
def test_what_is_no_plain_message(message: bytes) -> None:
    with pytest.raises(SaslFault):
        read_plain(message)


@pytest.mark.parametrize("message", [
    b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer\x01\x01", b"n,,\x01auth=Basic abc\x01\x01", BEARER[:-1],
    BEARER + b"\x01", BEARER.replace(b"n,,", b"p=x,,"), b"n,,\x01auth=Bearer a b\x01\x01",
    b"n,,\x01" + b"a=b\x01" * 10_000, b"n,,\x01auth=Bearer " + b"a" * 60_000])
def test_what_is_no_bearer_message(message: bytes) -> None:
    with pytest.raises(SaslFault):
        read_bearer(message)


def test_a_bearer_message_with_extensions() -> None:
    credentials, user = read_bearer(b"n,a=a=2Cda,\x01traceId=1\x01auth=Bearer abc.def\x01other=x y\x01\x01")
    assert (credentials.token, user) == ("abc.def", "a,da")


def test_a_login_cut_anywhere_is_the_same_and_half_of_it_asks_nobody() -> None:
    whole = framed(SaslHandshakeRequest(version=1, mechanism="PLAIN"), 1) \
        + framed(SaslAuthenticateRequest(version=2, auth_bytes=PLAIN), 2)
    expected = closed_peer()
    expected.session.handle_data(whole)
    answer = expected.link.take()
    for cut in range(1, len(whole)):
        peer = closed_peer()
        peer.session.handle_data(whole[:cut])
        assert admission_of(peer).asked == []
        peer.session.handle_data(whole[cut:])
        assert peer.link.take() == answer and peer.session.is_known
