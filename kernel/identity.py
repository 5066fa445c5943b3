"""What a hub is known by: its own numbers, given once and kept in its log, and the number of this start."""
from __future__ import annotations


class Identity:
    """Until `begin` what a new log would be given; from there on what the log says."""

    def __init__(self, hub: bytes, secret: bytes, shard: int) -> None:
        self.hub = hub
        """Whose log this is, 16 bytes."""

        self.secret = secret
        """What signs receipt handles, 32 bytes."""

        self.shard = shard
        """Who gives the ids of this hub, see `kernel.ids`."""

        self.epoch = 0
        """Which start of the hub this is."""

        self.first_id = 0
        """All message ids of earlier starts are below."""

    def begin(self, *, hub: bytes, secret: bytes, shard: int, epoch: int, first_id: int) -> None:
        """A start is over: this is what holds until the next one."""
        self.hub, self.secret, self.shard, self.epoch, self.first_id = hub, secret, shard, epoch, first_id
