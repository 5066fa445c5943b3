"""Who is asking: one object per user and kind of login, shared by all connections of that user over all doors."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gatehouse.gateways.admission.guard import RightsCache
    from gatehouse.gateways.admission.rules import Rule

DEFAULT_TENANT: Final = "/"
ANONYMOUS: Final = "anonymous"

# How somebody has logged in; an API key is `key:ID`.
BY_PASSWORD: Final = "password"
BY_CERTIFICATE: Final = "certificate"
BY_TOKEN: Final = "token"
BY_KEY: Final = "key:"


class Principal:  # decision 84
    """Compared and hashed by identity, so that a cache may use it as a key for nothing.

    Its groups and rights are looked up by name, so that they follow changes; only what a token says is kept here.
    """

    __slots__ = ("anonymous", "client_id", "expires_ms", "groups", "login", "name", "restriction", "standing", "tenant",
                 "tenants")

    def __init__(self, name: str, tenant: str = DEFAULT_TENANT, *, anonymous: bool = False,
                 tenants: frozenset[str] = frozenset(), groups: frozenset[str] = frozenset(), expires_ms: int = 0,
                 client_id: str | None = None, login: str = "", restriction: tuple[Rule, ...] | None = None) -> None:
        self.name = name
        self.tenant = tenant
        self.tenants = tenants | {tenant}
        self.anonymous = anonymous
        self.groups = groups
        """Groups that the principal's token names; the account's groups come on top."""

        self.expires_ms = expires_ms
        """When what it logged in with runs out, in ms since 1970; 0: never. Its user may end before:
        `Admission.ends_ms`."""

        self.client_id = client_id
        """The client id, where some rule asks for it (`Admission.known_by_client`), else None."""

        self.login = login
        self.restriction = restriction
        self.standing: RightsCache | None = None        # what it may; admission's

    def __repr__(self) -> str:
        return f"Principal({self.name!r}, tenant={self.tenant!r}, anonymous={self.anonymous})"

    def elsewhere(self, tenant: str, client_id: str | None) -> Principal:
        """The principal of the same user and login in another tenant, or known by another client id."""
        return Principal(self.name, tenant, anonymous=self.anonymous, tenants=self.tenants, groups=self.groups,
                         expires_ms=self.expires_ms, client_id=client_id, login=self.login,
                         restriction=self.restriction)
