"""Topics that the hub writes, for those who may: no wildcard shows them to anybody else. Pure.

    audit              $audit/WHO                who has changed what, for administrators
    journeys           $journeys/EVENT           what happened to messages, for administrators
    txn-check.GROUP    $txn-check/GROUP/ID       what a group's members are asked by Kafka, with half messages in it
    txn-half.GROUP     $txn-half/GROUP/ID        what was held for a group by Kafka

Their messages have addresses `$...`, which no filter that begins with a wildcard matches, and at which nobody but
administrators consumes or publishes; topics are read by their name.
"""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.admission.principal import DEFAULT_TENANT
from gatehouse.kernel.addresses.filters import MANY
from gatehouse.kernel.addresses.routes import RouteEntry

AUDIT_TOPIC: Final = "audit"
AUDIT_LEVEL: Final = "$audit"
JOURNEYS_TOPIC: Final = "journeys"
JOURNEYS_LEVEL: Final = "$journeys"
CHECKS: Final = "txn-check."
CHECKS_LEVEL: Final = "$txn-check"
HELD: Final = "txn-half."
HELD_LEVEL: Final = "$txn-half"

ROUTES: Final = (  # decision 83
    RouteEntry(f"{AUDIT_LEVEL}/{MANY}", AUDIT_TOPIC, "{rest}"),
    RouteEntry(f"{JOURNEYS_LEVEL}/{MANY}", JOURNEYS_TOPIC, "{rest}"),
    RouteEntry(f"{CHECKS_LEVEL}/{{group}}/{MANY}", CHECKS + "{group}", "{rest}"),
    RouteEntry(f"{HELD_LEVEL}/{{group}}/{MANY}", HELD + "{group}", "{rest}"))


# decision 301
def is_for_administrators(topic: str, tenant: str) -> bool:
    """Whether the hub writes this topic about itself: what has changed, and what happened to messages."""
    return topic in (AUDIT_TOPIC, JOURNEYS_TOPIC) and tenant == DEFAULT_TENANT


def group_of(topic: str) -> str:
    """The group whose transactions the topic tells of; "" where it is none of these topics."""
    return topic.partition(".")[2] if topic.startswith((CHECKS, HELD)) else ""
