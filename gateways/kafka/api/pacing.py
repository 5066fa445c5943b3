"""How fast topics are made and changed: a user who does it faster than he may is told by THROTTLING_QUOTA_EXCEEDED and
`throttle_time_ms` when he may again, as by Kafka's quota of controller mutations (KIP-599); clients try again by
themselves then. Those who do not know this answer are refused with POLICY_VIOLATION.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gatehouse.gateways.kafka.error_codes import THROTTLING_QUOTA_EXCEEDED
from gatehouse.gateways.kafka.mapping import Refused
from gatehouse.gateways.kafka.request import Request
from gatehouse.kernel.errors import TooManyTopics


class Pace:
    """Of one request, whose clients know the answer from `first_version` on."""

    def __init__(self, request: Request, first_version: int) -> None:
        self.wait_ms = 0
        """How long its client is to wait with the next."""

        self._guard = request.session.guard
        self._is_known = request.version >= first_version

    @contextmanager
    def told(self) -> Iterator[None]:
        """What is raised for want of time, as this client is told it."""
        try:
            yield
        except TooManyTopics as refusal:
            if not refusal.wait_ms or not self._is_known:
                raise
            self.wait_ms = max(self.wait_ms, refusal.wait_ms)
            raise Refused(THROTTLING_QUOTA_EXCEEDED, str(refusal)) from None

    def change(self) -> None:
        """One topic is to be changed. Raises Refused, TooManyTopics."""
        with self.told():
            self._guard.pace_topics()
