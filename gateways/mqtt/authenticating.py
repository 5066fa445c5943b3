"""Enhanced authentication of MQTT 5 (4.12): SCRAM, in AUTH packets before CONNACK, and again whenever a client likes.

    CONNECT  method, client first     AUTH 0x19  method, client first     (to log in again)
    AUTH 0x18         server first    AUTH 0x18          server first
    AUTH 0x18         client final    AUTH 0x18          client final
    CONNACK           server final    AUTH 0x00          server final

The machine is `gateways.admission.scram`; refusals are slowed, and so are proofs of a user for whom others have failed.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.errors import NotAuthenticated
from gatehouse.gateways.mqtt import properties, reasons
from gatehouse.gateways.mqtt.errors import ProtocolError
from gatehouse.gateways.mqtt.packets import decode_reason, encode_auth
from gatehouse.gateways.mqtt.properties import Packet

if TYPE_CHECKING:
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.scram import ScramServer
    from gatehouse.gateways.contract import Link

METHODS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

Done = Callable[["Principal | NotAuthenticated", bytes], None]
"""Who has logged in, with the server's last word; or why not."""


class EnhancedLogin:
    """One login. `later(ms, call)` calls once the time has passed, unless the connection ends before."""

    def __init__(self, link: Link, method: str, scram: ScramServer, later: Callable[[int, Callable[[], None]], None],
                 done: Done) -> None:
        self.method = method
        self.waits = False
        """Whether its end is held back: the client has nothing more to say."""

        self._link = link
        self._scram = scram
        self._later = later
        self._done = done
        self._has_begun = False

    def take(self, data: bytes | None) -> None:
        """What the client says next; None where a login begins and leaves that to its next AUTH."""
        if data is None:
            self._say(b"")
            return
        try:
            if not self._has_begun:
                self._has_begun = True
                self._say(self._scram.first(data))
                return
            final, principal = self._scram.final(data)
        except NotAuthenticated as error:
            refusal = error                # the name of an except clause is gone behind it
            self._end(error.delay_ms, lambda: self._done(refusal, b""))
            return
        if self._scram.wait_ms:
            self._end(self._scram.wait_ms, lambda: self._succeed_late(final))
        else:
            self._done(principal, final)

    def _say(self, data: bytes) -> None:
        self._link.write(encode_auth(reasons.CONTINUE_AUTHENTICATION, self.method, data))

    def _end(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.waits = True
        self._later(delay_ms, call)

    def _succeed_late(self, final: bytes) -> None:
        try:
            self._done(self._scram.accepted(), final)
        except NotAuthenticated as error:        # not any more
            self._done(error, b"")


def read_auth(body: bytes, method: str) -> tuple[int, bytes]:
    """The body of an AUTH: (reason code, authentication data). `method` is that of CONNECT. Raises ProtocolError."""
    reason, given = decode_reason(body, Packet.AUTH)
    if not method:
        raise ProtocolError("[MQTT5-4.12.0-7] AUTH without an authentication method in CONNECT")
    if given.values.get(properties.AUTH_METHOD) != method:
        raise ProtocolError("[MQTT5-4.12.0-5] an AUTH with another method than CONNECT's")
    if reason not in (reasons.CONTINUE_AUTHENTICATION, reasons.RE_AUTHENTICATE):
        raise ProtocolError(f"[MQTT5-3.15.2-1] an AUTH with reason code {reason:#04x}")
    return reason, given.values.get(properties.AUTH_DATA, b"")
