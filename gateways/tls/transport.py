"""One TLS connection between the socket's transport and a door's protocol.

    socket ⇄ transport of the event loop ⇄ TlsTransport ⇄ protocol (the shared connection, the HTTP server's)

To the event loop this is a protocol, to the door's protocol a transport that behaves as the plain one does: what was
written and not yet sent lies in one place, the transport beneath, so its limits, its `pause_writing` and
`get_write_buffer_size` hold for TLS as they stand. The protocol is made when the handshake is done; a peer that never
gets there has cost a timer, OpenSSL's state of a connection and one place among the door's descriptors.

(The event loops bring TLS of their own. uvloop's was measured and refused: 24 KiB resident per idle connection against
17 here, and a buffer that keeps up to 256 KiB once they came at once; answers hidden in a second buffer that
`get_write_buffer_size` does not count; no alert to a peer whose handshake fails.)

close_notify is sent before the socket is closed and not waited for (RFC 8446 6.1, RFC 5246 7.2.1).
"""
from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from gatehouse.gateways.connections.wrong_port import what_came
from gatehouse.gateways.runtime import peer_name

if TYPE_CHECKING:
    from gatehouse.gateways.connections.native_sockets import Reader
    from gatehouse.gateways.runtime import Connection
    from gatehouse.gateways.tls.tls import Resumed

RECORD_BYTES: Final = 16_384        # plain text of one TLS record at most (RFC 8446 5.1), and of one `read`
ALERT_S: Final = 2.0                # what a peer whose TLS is no good is given to take the alert that says so

NOT_SPOKEN: Final = "tls_not_spoken"

# What OpenSSL calls it -> what is counted. Everything else is `tls_failed`.
REASONS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "tls_bad_certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls_no_certificate",
    "UNSUPPORTED_PROTOCOL": "tls_nothing_in_common",
    "NO_SHARED_CIPHER": "tls_nothing_in_common",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "tls_nothing_in_common",
    "HTTP_REQUEST": NOT_SPOKEN,
    "HTTPS_PROXY_REQUEST": NOT_SPOKEN,
    "WRONG_VERSION_NUMBER": NOT_SPOKEN,
    "UNKNOWN_PROTOCOL": NOT_SPOKEN,
    "BAD_RECORD_TYPE": NOT_SPOKEN,
    "UNEXPECTED_MESSAGE": NOT_SPOKEN,
    "RECORD_LAYER_FAILURE": NOT_SPOKEN,
}


class Doorstep(Protocol):
    """The door, as handshakes see it."""

    def begin_handshake(self, peer: str) -> bool:
        """Whether one more descriptor may be spent on a peer that only begins."""

    def end_handshake(self, peer: str, reason: str) -> None:
        """A handshake that had begun is over: done (reason empty), or failed, `code: text`."""

    def note_held(self, size: int) -> None:
        """So many bytes more than before, or fewer, have come of peers and wait for the rest of their records."""

    def note_broken(self, peer: str, reason: str) -> None:
        """A peer whose handshake was done sent what is no TLS, or called it off, `code: text`."""


# How far a connection has come. Plain numbers: to look up a member of an Enum is a tenth of what a message costs.
_NEW: Final = 0            # nothing from the socket yet
_HANDSHAKE: Final = 1      # the peer has not finished its handshake
_OPEN: Final = 2           # the protocol has been made
_CLOSED: Final = 3         # nothing is read or written any more


class TlsTransport(asyncio.Transport, asyncio.Protocol):  # decision 96
    """One TLS connection, between a socket's transport and a door's protocol. `make` makes that protocol once the peer
    has shown that it speaks TLS."""

    __slots__ = ("_context", "_doorstep", "_held_bytes", "_incoming", "_make", "_outgoing", "_peer", "_protocol",
                 "_raw", "_reader", "_resumed", "_stage", "_timeout_s", "_timer", "_tls")

    def __init__(self, context: ssl.SSLContext, timeout_s: float, doorstep: Doorstep,
                 make: Callable[[], asyncio.Protocol], resumed: Resumed | None = None) -> None:
        super().__init__()
        self._resumed = resumed
        self._context = context
        self._timeout_s = timeout_s
        self._doorstep = doorstep
        self._make = make
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._protocol: asyncio.Protocol | None = None
        self._raw: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._peer = "unknown"
        self._held_bytes = 0             # of what has come, see `_hold`
        self._stage = _NEW
        self._timer: asyncio.TimerHandle | None = None

    # --- to the event loop: a protocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._peer = peer_name(transport.get_extra_info("peername"))
        if not self._doorstep.begin_handshake(self._peer):
            self._stage = _CLOSED
            self._raw.abort()
            return
        self._stage = _HANDSHAKE
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._on_timeout)

    def data_received(self, data: bytes) -> None:
        if self._stage == _OPEN:
            self._incoming.write(data)
            self._hold(self._held_bytes + len(data))
            self._read()
        elif self._stage == _HANDSHAKE:
            self._incoming.write(data)
            self._hold(self._held_bytes + len(data))
            self._shake_hands(data)

    def eof_received(self) -> bool:
        """The peer sends nothing more, whether it said so (close_notify) or not."""
        if self._stage == _HANDSHAKE:
            self._fail("tls_broken_off: the peer left during its handshake")
        elif self._stage == _OPEN and self._protocol is not None:
            if self._protocol.eof_received():
                return True
            self.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stage == _HANDSHAKE:
            self._end_handshake("tls_broken_off: the peer left during its handshake")
        self._stop_timer()
        self._hold(0)
        self._stage = _CLOSED
        self._raw = self._reader = None  # they point at each other: OpenSSL's state would await collection
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- to the door's protocol: a transport -------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._stage != _OPEN or not data:
            return
        try:
            sent = self._tls.write(data)
            while sent < len(data):      # OpenSSL writes a record at a time
                sent += self._tls.write(memoryview(data)[sent:])
        except ssl.SSLError:
            self.abort()
            return
        self._send()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what is queued and close_notify, then close."""
        if self._stage != _OPEN or self._raw is None:
            return
        self._stage = _CLOSED
        with contextlib.suppress(ssl.SSLError):      # it would like to hear the peer's, which nobody waits for
            self._tls.unwrap()
        self._send()
        self._raw.close()

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        self._stage = _CLOSED
        if self._raw is not None:
            self._raw.abort()

    def is_closing(self) -> bool:
        return self._stage == _CLOSED or self._raw is None or self._raw.is_closing()

    def set_reader(self, reader: Reader | None) -> None:
        """As `native_sockets.Transport` does: what is decrypted is offered to it first."""
        self._reader = reader

    def pause_reading(self) -> None:
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._raw is not None:
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._raw is not None and self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._wire.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._wire.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """In encrypted bytes, which are a few more than the plain ones."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None, "there is a protocol from the handshake to the end"
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "sslcontext":
                return self._context
            case "ssl_object":
                return self._tls
            case "peercert":
                return self._tls.getpeercert()
            case "peercert_der":
                return self._tls.getpeercert(binary_form=True)
            case "cipher":
                return self._tls.cipher()
            case "tls_version":
                return self._tls.version()
            case _:
                return default if self._raw is None else self._raw.get_extra_info(name, default)

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _wire(self) -> asyncio.Transport:
        assert self._raw is not None, "only a connection that was made is given to a protocol"
        return self._raw

    def _send(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def _shake_hands(self, data: bytes) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as error:
            self._send()                 # the alert that tells the peer why
            self._fail(describe_failure(error, what_came(data)))
        else:
            self._send()
            if self._resumed is not None and self._tls.session_reused and not self._resumed.is_good(self._tls):
                self._fail("tls_bad_certificate: it has run out since its session began, or its authority's list has")
                return
            self._end_handshake("")
            self._hold(self._incoming.pending)
            self._stage = _OPEN
            self._protocol = self._make()  # decision 97
            self._protocol.connection_made(self)
            self._read()                 # what came right behind the handshake

    def _hold(self, size: int) -> None:
        """So much has come that waits: of a handshake what it has taken, else a part of a record, or a little more."""
        if size != self._held_bytes:
            self._doorstep.note_held(size - self._held_bytes)
            self._held_bytes = size

    def _read(self) -> None:
        """Hand over all that can be decrypted: nothing waits here while the protocol wants nothing read."""
        tls, incoming = self._tls, self._incoming
        parts: list[bytes] = []
        ended, failure, is_partial = False, None, False
        try:
            while not ended and (incoming.pending or tls.pending()):
                part = tls.read(RECORD_BYTES)
                if part:
                    parts.append(part)
                else:
                    ended = True         # close_notify
        except ssl.SSLWantReadError:
            is_partial = True            # the rest of a record is on its way
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            failure = error
        if not is_partial:
            self._hold(0)
        elif parts:
            self._hold(min(self._held_bytes, RECORD_BYTES))
        self._send()                     # an answer to a key update, or the alert that says what was wrong
        if parts and self._protocol is not None and self._stage == _OPEN:
            self._hand_over(self._protocol, parts[0] if len(parts) == 1 else b"".join(parts))
        if failure is not None and self._stage == _OPEN:
            self._doorstep.note_broken(self._peer, describe_failure(failure))
            self._close_soon()
        elif ended:
            self.eof_received()

    def _hand_over(self, protocol: asyncio.Protocol, data: bytes) -> None:
        """To a native reader, where there is one that takes it, else to the protocol."""
        if self._reader is not None and self._reader.offer(data):
            cast("Connection", protocol).data_taken()
        else:
            protocol.data_received(data)

    def _on_timeout(self) -> None:
        self._fail(f"tls_timeout: no whole handshake within {self._timeout_s:g} s")

    def _fail(self, reason: str) -> None:
        if self._stage == _HANDSHAKE:
            self._end_handshake(reason)
            self._close_soon()

    def _close_soon(self) -> None:
        """Close once the alert has left; a peer that does not take even that is not waited for."""
        self._stage = _CLOSED
        self._wire.close()
        self._timer = asyncio.get_running_loop().call_later(ALERT_S, self._wire.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_handshake(self, reason: str) -> None:
        self._stop_timer()
        self._doorstep.end_handshake(self._peer, reason)


def describe_failure(error: ssl.SSLError, came: str = "") -> str:
    """`code: text` of what OpenSSL complains about; a code of `REASONS` or `tls_refused_by_peer`, else `tls_failed`.
    `came`: what the peer's bytes are, as far as that is known."""
    reason = error.reason or "unknown"
    text = getattr(error, "verify_message", "") or reason.lower().replace("_", " ")
    if "_ALERT_" in reason:
        return f"tls_refused_by_peer: it sent {text}"
    code = REASONS.get(reason, "tls_failed")
    return f"{code}: {f'{came} came to a TLS port' if came and code == NOT_SPOKEN else text}"
