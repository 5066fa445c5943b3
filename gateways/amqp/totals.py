"""What the door's connections have done since the hub's start, in numbers that only grow: for RabbitMQ's dashboards.

Whoever does it adds to them, once for a burst.
"""
from __future__ import annotations


class Totals:
    """One per hub. What is `given_back` is delivered again."""

    __slots__ = ("confirmed", "confirming", "nowhere", "dropped", "returned", "consumed_auto", "consumed_manual",
                 "got_auto", "got_manual", "got_nothing", "given_back", "acknowledged", "queues_declared",
                 "queues_created", "queues_deleted", "channels_opened", "channels_closed", "connections_opened",
                 "connections_closed")

    def __init__(self) -> None:
        self.confirming = self.confirmed = 0               # publishes that want a confirm; that have it
        self.nowhere = self.dropped = 0                    # publishes that lead nowhere; those that are not returned
        self.returned = 0                                  # mandatory publishes without a queue
        self.consumed_auto = self.consumed_manual = 0      # deliveries to consumers, by whether they are acknowledged
        self.got_auto = self.got_manual = self.got_nothing = 0     # answers to basic.get
        self.given_back = self.acknowledged = 0            # deliveries
        self.queues_declared = self.queues_created = self.queues_deleted = 0
        self.channels_opened = self.channels_closed = 0
        self.connections_opened = self.connections_closed = 0
