"""What one principal may at the moment, with the answers that were given before; thrown away at every change."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.admission.decision import Operation
from gatehouse.gateways.admission.rights import Rights

KNOWN_MAX: Final = 4096                  # answers remembered for one principal


class RightsCache:
    """Made when a principal first asks after a change, which `version` tells."""

    __slots__ = ("known", "known_topics", "rights", "version")

    def __init__(self, version: object, rights: Rights | None) -> None:
        self.version = version
        self.rights = rights
        """The principal's rights; None: everything is allowed."""

        self.known: dict[tuple[Operation, str], bool] = {}
        self.known_topics: dict[tuple[Operation, str], bool] = {}

    def may(self, operation: Operation, wanted: str) -> bool:
        """Whether an operation is allowed at an address, or with a filter."""
        if self.rights is None:
            return True
        answers = self.known
        allowed = answers.get((operation, wanted))
        if allowed is None:
            if len(answers) >= KNOWN_MAX:
                answers.clear()
            allowed = answers[operation, wanted] = self.rights.of_address(operation, wanted).allowed
        return allowed

    def may_topic(self, operation: Operation, topic: str) -> bool:
        """Whether an operation is allowed with a topic as a whole: asked by every fetch and produce for each of their
        topics."""
        if self.rights is None:
            return True
        answers = self.known_topics
        allowed = answers.get((operation, topic))
        if allowed is None:
            if len(answers) >= KNOWN_MAX:
                answers.clear()
            allowed = answers[operation, topic] = self.rights.of_topic(operation, topic).allowed
        return allowed
