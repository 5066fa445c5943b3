"""The one path that every publish and subscription of every door takes: authenticate, authorize, quota, trace.

Nothing here runs per message: a principal is made per connection, a placement per new address (`cache` remembers it
with the verdict), `charge` is called once per burst.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from gateways.admission.decision import Decide, Operation, decide
from gateways.admission.places import PlacementCache
from gateways.admission.principal import Principal
from gateways.admission.quota import Meter, Quota
from gateways.admission.trace import Trace

if TYPE_CHECKING:
    from kernel.kernel import Kernel
    from kernel.message import Placement

GUEST: Final = ("guest", "guest")      # what AMQP clients send unless told otherwise: RabbitMQ's default account
CACHES_MAX: Final = 4096               # (principal, door) pairs with a cache; the oldest goes, and is rebuilt by use


class NotAuthenticated(Exception):
    """The credentials are wrong, or none came where some are needed. The text never repeats them."""

    code = "not_authenticated"


class Denied(Exception):
    """The principal may not do that there."""

    code = "not_authorized"


class Admission:
    """`decide` is the pure decision; `quotas` maps principals' names to limits (none by default)."""

    def __init__(self, kernel: Kernel, now_ms: Callable[[], int], *, allow_anonymous: bool = True,
                 quotas: Mapping[str, Quota] | None = None, decision: Decide | None = None) -> None:
        self.allow_anonymous = allow_anonymous
        self.anonymous = Principal("anonymous", anonymous=True)
        self.trace = Trace()
        self._kernel = kernel
        self._now_ms = now_ms
        self._quotas = dict(quotas or {})
        self._decide: Decide = decision or partial(decide, allow_anonymous=allow_anonymous)
        self._meters: dict[str, Meter] = {}
        self._caches: dict[tuple[Principal, str], PlacementCache] = {}

    # --- who ---------------------------------------------------------------------------------------------------------

    def authenticate(self, door: str, peer: str, user: str | None, password: str | None) -> Principal:
        """The principal behind these credentials. Raises NotAuthenticated.

        While anonymous access is allowed a peer without credentials is `anonymous`, and so is `guest`/`guest` on the
        AMQP door. There are no users yet, so every other password is wrong.
        """
        if self.allow_anonymous and (user is None and password is None or door == "amqp" and (user, password) == GUEST):
            return self.anonymous
        self.trace.on_event(door, "not_authenticated")
        if user is None and password is None:
            raise NotAuthenticated("credentials are needed")
        raise NotAuthenticated("unknown user or wrong password")

    # --- may they ----------------------------------------------------------------------------------------------------

    def may(self, principal: Principal, operation: Operation, address: str) -> bool:
        """Whether the principal may do this at an address (or, to consume, with a filter)."""
        return self._decide(principal, operation, address)

    def require(self, principal: Principal, operation: Operation, address: str) -> None:
        """`may`, or Denied."""
        if not self._decide(principal, operation, address):
            raise Denied(f"{principal.name} may not {operation.value} at {address!r}")

    def place(self, principal: Principal, address: str) -> Placement:
        """Where a message for `address` goes. Raises Denied and what `kernel.place` raises."""
        self.require(principal, Operation.PUBLISH, address)
        return self._kernel.place(address, tenant=principal.tenant,
                                  may_create=self._decide(principal, Operation.CREATE, address))

    def place_in(self, principal: Principal, topic: str, key: bytes | None, queue: int | None = None) -> Placement:
        """Where a message with topic and key given goes. Raises Denied and what `kernel.place_in` raises."""
        kernel = self._kernel
        address = kernel.address_of(topic, key, ())
        self.require(principal, Operation.PUBLISH, address)
        return kernel.place_in(topic, key, queue=queue, tenant=principal.tenant,
                               may_create=self._decide(principal, Operation.CREATE, address))

    def cache(self, principal: Principal, door: str) -> PlacementCache:
        """The bounded look-up from the door's raw addresses to placements that were allowed."""
        key = (principal, door)
        cache = self._caches.get(key)
        if cache is None:
            if len(self._caches) >= CACHES_MAX:
                del self._caches[next(iter(self._caches))]
            cache = self._caches[key] = PlacementCache()
        return cache

    def forget_places(self) -> None:
        """Topics, routes or rights have changed: every address is looked up and judged anew."""
        for cache in self._caches.values():
            cache.clear()

    # --- how much ----------------------------------------------------------------------------------------------------

    def charge(self, principal: Principal, messages: int, size_bytes: int) -> int:
        """Count a burst that was taken; returns for how many ms its sender is to be slowed down (0: not at all)."""
        self.trace.on_accepted(messages, size_bytes)
        if not self._quotas:
            return 0
        quota = self._quotas.get(principal.name)
        if quota is None:
            return 0
        now_ms = self._now_ms()
        meter = self._meters.get(principal.name)
        if meter is None:
            meter = self._meters[principal.name] = Meter(quota, now_ms)
        return meter.charge(messages, size_bytes, now_ms)
