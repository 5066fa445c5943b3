"""Why a message of a group came to its end without an ack."""
from __future__ import annotations

from typing import Final

EXPIRED: Final = "expired"
ATTEMPTS: Final = "attempts"           # it was handed out as often as the group allows
REJECTED: Final = "rejected"
OVERFLOW: Final = "overflow"
