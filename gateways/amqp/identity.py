"""Who one connection is: its login, its virtual host, and the secrets that it shows later.

A token runs out, and a client that is to stay shows the next one by connection.update-secret (RabbitMQ's extension).
That is another login of the same user: the connection then ends when the new one runs out, and what it may do is
judged by it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.admission import Denied, NotAuthenticated
from gatehouse.gateways.admission.errors import TooManyConnections
from gatehouse.gateways.amqp import login
from gatehouse.gateways.amqp.broker import DOOR_NAME
from gatehouse.gateways.amqp.errors import ConnectionFault
from gatehouse.gateways.amqp.methods import IDS, Arguments

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.gateways.admission.attempt import Gone, OnAuthenticated
    from gatehouse.gateways.admission.principal import Principal
    from gatehouse.gateways.admission.session_registry import RegisteredSession, Registration
    from gatehouse.gateways.contract import Link

NOT_ALLOWED: Final = 530


class Identity:
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
        credentials = login.read_login(self._mechanism, arguments["response"], self._link)
        self._login_name = credentials.user or ""
        self._admission.authenticate(DOOR_NAME, self._link.peer, credentials, on_done, gone)

    @property
    def attempt(self) -> str:
        """Of the login, for the log."""
        return f"{self._login_name[:80]!r} by {self._mechanism}"

    def refusal(self, why: NotAuthenticated) -> ConnectionFault:
        """What the client is told of a login that came to nothing."""
        return login.refusal(why, self._mechanism)

    def take_seat(self, principal: Principal) -> None:
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
            raise ConnectionFault(login.RESOURCE_ERROR, str(full)) from None

    def _be(self, principal: Principal, *, replaces: bool) -> None:
        """Have a place among the connections of this tenant. Raises TooManyConnections."""
        self.leave()
        self._registration = self._admission.connect(principal, DOOR_NAME, self._session, replaces=replaces)
        self.principal = principal

    def check_secret(self, secret: bytes, on_done: OnAuthenticated) -> None:
        """Look at connection.update-secret."""
        credentials = login.credentials_of(self._login_name or self.user, secret.decode(errors="replace"))
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
