"""Who is asking: one object per authenticated user, shared by all connections of that user over all doors."""
from __future__ import annotations


class Principal:
    """Compared and hashed by identity, so that a cache may use it as a key for nothing."""

    __slots__ = ("anonymous", "name", "tenant")

    def __init__(self, name: str, tenant: str = "/", *, anonymous: bool = False) -> None:
        self.name = name
        self.tenant = tenant
        self.anonymous = anonymous

    def __repr__(self) -> str:
        return f"Principal({self.name!r}, tenant={self.tenant!r}, anonymous={self.anonymous})"
