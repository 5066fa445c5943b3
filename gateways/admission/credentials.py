"""What a peer showed of itself, as its door read it. Secrets never leave by `repr`."""
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a peer has shown, as far as its protocol carries it; a peer without credentials shows nothing.

    Doors that know only passwords (MQTT, AMQP PLAIN, HTTP Basic) may carry an API key or a JWT in `password`.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)

    token: str | None = field(default=None, repr=False)
    """Bearer: a JWT or an API key (HTTP Bearer, Kafka OAUTHBEARER)."""

    certificate: str | None = None
    """The name in the client's verified certificate, see `Link.certificate`."""

    certificate_ends_ms: int = 0
    """When the certificate is no longer good; 0: never, as in tests."""

    preset: bool = False
    """Whether this is what the protocol's clients show unless they are told otherwise (AMQP's `guest`): as good as
    nothing where nobody need show anything, and where there is no such user."""

    @property
    def empty(self) -> bool:
        return self.user is None and self.password is None and self.token is None and self.certificate is None


NOTHING = Credentials()
