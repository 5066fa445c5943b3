"""The opening of a connection: what is offered, what a client may answer, and who it is then. Pure.

    client  AMQP 0 0 9 1     hub  Start     client  StartOk     hub  Tune     client  TuneOk, Open     hub  OpenOk

A token runs out, and a client that is to stay shows the next one by connection.update-secret (RabbitMQ's extension).
That is another login of the same user: the connection then ends when the new one runs out, and what it may do is
judged by it.
"""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from gatehouse.gateways.admission.credentials import NOTHING, Credentials
from gatehouse.gateways.admission.errors import Denied, LoginsFull, NotAuthenticated, TooManyConnections
from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.config import FRAME_MIN_SIZE, AmqpConfig
from gatehouse.gateways.amqp.errors import ConnectionFault, SyntaxFault
from gatehouse.gateways.amqp.methods import IDS, Arguments, encode_method
from gatehouse.gateways.amqp.tables import Field, Table, decode_table, plain, text
from gatehouse.gateways.version import hub_version

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.attempt import Gone, OnAuthenticated
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.session_registry import RegisteredSession, Registration
    from gatehouse.gateways.contract import Link

log = logging.getLogger("gatehouse.gateways")
RABBITMQ_VERSION: Final = "4.0.0"
"""Whose behaviour clients find here: they read `product` and `version` as RabbitMQ's, and some refuse less, or ask for
other things where they see another product. decision 287"""

PROTOCOL_HEADER: Final = b"AMQP\0\0\x09\x01"
PASSWORDS: Final = "PLAIN AMQPLAIN"
EXTERNAL: Final = "EXTERNAL"           # the client's certificate, offered where it showed one
ANONYMOUS: Final = "ANONYMOUS"         # RFC 4505, where anonymous access is allowed; last: some take the first
CAPABILITIES: Final = ("publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
                       "connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos",
                       "direct_reply_to")
ACCESS_REFUSED: Final = 403
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
SHOWN_MAX: Final = 32                  # properties of a client that are shown
SHOWN_CHARACTERS: Final = 256          # of each

CLOSES_ON_REFUSAL: Final = "authentication_failure_close"
WANTS_CANCELS: Final = "consumer_cancel_notify"
WANTS_BLOCKED: Final = "connection.blocked"

GUEST: Final = ("guest", "guest")
"""RabbitMQ's default account, which clients show unless they are told otherwise."""


def encode_start(hub_name: str, certificate: str | None, *, allow_anonymous: bool) -> bytes:
    mechanisms = " ".join([PASSWORDS, *[EXTERNAL][:certificate is not None], *[ANONYMOUS][:allow_anonymous]])
    capabilities = {name: Field("t", True) for name in CAPABILITIES}
    properties: Table = {"capabilities": Field("F", capabilities), "cluster_name": text(hub_name),
                         "product": text("RabbitMQ"), "version": text(RABBITMQ_VERSION),
                         "platform": text("Python"), "information": text(f"Gatehouse {hub_version()}")}
    return encode_method("connection.start", minor=9, server_properties=properties, mechanisms=mechanisms.encode(),
                         locales=b"en_US")


def encode_tune(config: AmqpConfig) -> bytes:
    return encode_method("connection.tune", channel_max=config.channel_max, frame_max=config.frame_max,
                         heartbeat=config.heartbeat_s)


def client_capabilities(properties: Table) -> frozenset[str]:
    field = properties.get("capabilities")
    return frozenset() if field is None or field.type != "F" else frozenset(
        name for name, value in field.value.items() if value == Field("t", True))


def shown_properties(properties: Table) -> dict[str, Any]:
    """What a client says of itself, for people: as much of it as is bearable."""
    shown: dict[str, Any] = {}
    for name, field in list(properties.items())[:SHOWN_MAX]:
        if field.type == "F":
            shown[name] = {entry: bool(of.value) for entry, of in list(field.value.items())[:SHOWN_MAX]}
        else:
            shown[name] = str(plain(field))[:SHOWN_CHARACTERS]
    return shown


def read_login(mechanism: str, response: bytes, link: Link) -> Credentials:
    """What the client showed. Raises ConnectionFault, SyntaxFault."""
    if mechanism == "PLAIN":               # RFC 4616: authorization identity, NUL, user, NUL, password
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise SyntaxFault("a PLAIN response that is no user and password")
        return credentials_of(parts[1].decode(errors="replace"), parts[2].decode(errors="replace"))
    if mechanism == "AMQPLAIN":            # a table without its size
        table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
        user, password = table.get("LOGIN"), table.get("PASSWORD")
        if user is None or password is None:
            raise SyntaxFault("an AMQPLAIN response without LOGIN and PASSWORD")
        return credentials_of(str(plain(user)), str(plain(password)))
    if mechanism == EXTERNAL and link.certificate is not None:
        return Credentials(certificate=link.certificate, certificate_ends_ms=link.certificate_ends_ms)
    if mechanism == ANONYMOUS:  # decision 332
        return NOTHING
    raise ConnectionFault(NOT_ALLOWED, f"{mechanism} is none of the mechanisms that were offered")


def credentials_of(user: str, password: str) -> Credentials:
    """What a client has shown by a password."""
    return Credentials(user, password, preset=(user, password) == GUEST)


def check_tune(config: AmqpConfig, wish: Arguments) -> tuple[int, int, int]:
    """(channel max, frame max, heartbeat in s); 0 leaves the first two to the hub. Raises ConnectionFault."""
    frame_max = _negotiated("frame_max", wish["frame_max"], config.frame_max, FRAME_MIN_SIZE)
    channel_max = _negotiated("channel_max", wish["channel_max"], config.channel_max, 1)
    return channel_max, frame_max, wish["heartbeat"]


def _negotiated(name: str, wish: int, highest: int, lowest: int) -> int:
    if wish == 0:
        return highest
    if wish > highest:
        raise ConnectionFault(NOT_ALLOWED,
                              f"negotiated {name} = {wish} is higher than the maximum allowed value ({highest})")
    if wish < lowest:
        raise ConnectionFault(NOT_ALLOWED,
                              f"negotiated {name} = {wish} is lower than the minimum allowed value ({lowest})")
    return wish


def refusal(why: NotAuthenticated, mechanism: str) -> ConnectionFault:
    """What a client that takes it (`CLOSES_ON_REFUSAL`) is told of a login that came to nothing."""
    if isinstance(why, LoginsFull):
        fault = ConnectionFault(RESOURCE_ERROR, str(why))
    else:
        fault = ConnectionFault(ACCESS_REFUSED, f"Login was refused using authentication mechanism {mechanism}. "
                                                "For details see the broker logfile.")
    return fault


def log_end(peer: str, reason: str) -> None:
    """The line that a connection's end leaves, where the peer was faster than the hub."""
    log.info("amqp %s closed: %s", peer, reason)


class Identity:
    """Who one connection is."""

    principal: Principal

    def __init__(self, admission: Admission, link: Link, session: RegisteredSession) -> None:
        self.user = ""                                     # for people; "" until it is logged in
        self._admission = admission
        self._link = link
        self._session = session
        self._mechanism = ""
        self._login_name = ""                              # as the client gave it
        self._registration: Registration | None = None

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.user} {DOOR_NAME} {self._link.peer}"

    @property
    def client(self) -> str:
        """The user and its address, which are the same when it comes again."""
        return f"{self.user}@{self._link.peer.rpartition(':')[0]}"

    def check(self, arguments: Arguments, on_done: OnAuthenticated, gone: Gone) -> None:
        """Look at connection.start-ok; see `Admission.authenticate`. Raises ConnectionFault, SyntaxFault."""
        self._mechanism = arguments["mechanism"]
        credentials = read_login(self._mechanism, arguments["response"], self._link)
        self._login_name = credentials.user or ""
        self._admission.authenticate(DOOR_NAME, self._link.peer, credentials, on_done, gone)

    @property
    def attempt(self) -> str:
        """Of the login, for the log."""
        return f"{self._login_name[:80]!r} by {self._mechanism}"

    def refusal(self, why: NotAuthenticated) -> ConnectionFault:
        """What the client is told of a login that came to nothing."""
        return refusal(why, self._mechanism)

    def register(self, principal: Principal) -> None:
        """It is logged in, and no connection of a tenant before it has entered a virtual host."""
        self.principal, self.user = principal, principal.name
        self._registration = self._admission.register(principal, DOOR_NAME, self._session)

    def enter(self, virtual_host: str) -> None:
        """Be there from now on. Raises ConnectionFault 530, and 506 where there are too many connections."""
        try:
            self._be(self._admission.in_tenant(self.principal, virtual_host), replaces=False)
        except Denied:
            raise ConnectionFault(NOT_ALLOWED, f"access to vhost '{virtual_host}' refused for user "
                                               f"'{self.user}'") from None
        except TooManyConnections as full:
            raise ConnectionFault(RESOURCE_ERROR, str(full)) from None

    def _be(self, principal: Principal, *, replaces: bool) -> None:
        """Have a place among the connections of this tenant. Raises TooManyConnections."""
        self.leave()
        self._registration = self._admission.connect(principal, DOOR_NAME, self._session, replaces=replaces)
        self.principal = principal

    def check_secret(self, secret: bytes, on_done: OnAuthenticated) -> None:
        """Look at connection.update-secret."""
        credentials = credentials_of(self._login_name or self.user, secret.decode(errors="replace"))
        self._admission.authenticate(DOOR_NAME, self._link.peer, credentials, on_done, lambda: self._link.gone)

    def renew(self, answer: Principal | NotAuthenticated, virtual_host: str) -> None:
        """Be whom the new secret has shown. Raises ConnectionFault 530 where that is not this user."""
        refusal = ConnectionFault(NOT_ALLOWED, "New secret was refused by one of the backends")
        refusal.method = IDS["connection.update-secret"]
        if isinstance(answer, NotAuthenticated) or answer.name != self.principal.name:
            raise refusal
        try:
            principal = self._admission.in_tenant(answer, virtual_host)
        except Denied:
            raise refusal from None
        self._be(principal, replaces=True)

    def leave(self) -> None:
        """Idempotent."""
        if self._registration is not None:
            self._registration.leave()
            self._registration = None
