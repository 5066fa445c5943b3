"""Wills are published with the rights that their user has at that time, though he is not connected: none, where nobody
may log in by his name any more."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.admission.principal import ANONYMOUS, Principal
from gatehouse.kernel.errors import KeptFull, KernelError, Stopping, StorageFull
from gatehouse.kernel.message import Origin
from gatehouse.kernel.records.record import add_header, encode_header

if TYPE_CHECKING:
    from gatehouse.gateways.admission.admission import Admission
    from gatehouse.kernel.api import HubPort
    from gatehouse.kernel.sessions.session_values import Will

EXPIRES_AT: Final = b"expires-at"
LATER: Final = (StorageFull, KeptFull, Stopping)
"""Refusals that are about the hub, not about the will: it is tried again."""


class WillPublisher:
    """For `SessionsPort.publish_wills`. What cannot be published is counted, as there is nobody to tell."""

    def __init__(self, kernel: HubPort, admission: Admission, door: str, wall_ms: Callable[[], int]) -> None:
        self._kernel = kernel
        self._wall_ms = wall_ms
        self._admission = admission
        self._door = door
        self._principal = Principal(ANONYMOUS, anonymous=True)     # whose will was the last: the next often is, too

    def publish(self, will: Will) -> bool:
        """Append it in this turn. False: not now."""
        admission = self._admission
        user = self._principal
        if (user.name, user.tenant) != (will.user, will.tenant):
            user = self._principal = Principal(will.user, will.tenant, anonymous=will.user == ANONYMOUS)
        principal = admission.known_by_client(user, will.client_id)
        try:
            if admission.is_gone(will.user):
                raise Denied(f"there is no user {will.user!r} any more")
            placement = admission.place(principal, will.address)
            headers = will.headers
            if will.expiry_ms:
                until_ms = self._wall_ms() + will.expiry_ms
                headers = add_header(headers, encode_header(EXPIRES_AT, b"%d" % until_ms))
            self._kernel.append_with([(placement, will.value, headers, will.attributes, will.timestamp_ms)], [], None,
                                     origin=Origin(self._door, will.user, will.client_id))
        except LATER:
            return False
        except (Denied, KernelError) as error:
            admission.trace.on_event(self._door, "will_" + error.code)
        return True
