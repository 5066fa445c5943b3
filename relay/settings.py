"""What is set for links: `[relay]` and `[[relay.links]]` of a hub, and the file of a meeting point. Pure."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from gatehouse.kernel.addresses.address import is_address
from gatehouse.kernel.errors import InvalidFilter
from gatehouse.relay.frames import LEAST_FRAME_BYTES
from gatehouse.relay.passing import Filters, Renames

ARROW: Final = "->"
HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
LEAST_PACE: Final = 1 << 16
DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
KEY: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RelaySection:
    """[relay]"""

    url: str = field(default="", metadata={
        "help": "The meeting point that this hub dials, `wss://HOST[:PORT]/v1/relay`; `ws://` only to a host of this "
                "machine. Left out, there are no links."})
    ca: str | None = field(default=None, metadata={
        "help": "File with the authority of the meeting point's certificate, instead of the system's."})
    proxy: str | None = field(default=None, metadata={
        "secret": True, "help": "HTTP proxy on the way there, `http://[USER:PASSWORD@]HOST:PORT`, asked to CONNECT."})
    bytes_per_second: int = field(default=0, metadata={
        "min": 0, "max": 1 << 40, "help": "Bytes that go out in a second at most, over all links; 0: as many as can."})
    messages_per_second: int = field(default=0, metadata={
        "min": 0, "max": 1 << 40,
        "help": "Messages that go out in a second at most, over all links; 0: as many as can."})
    owed_messages: int = field(default=10_000_000, metadata={
        "min": 0, "max": 1 << 40,
        "help": "Messages of one partition that retention keeps at most for links that have not sent them; what is "
                "older is lost to them and listed."})


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """[[relay.links]]"""

    name: str = field(metadata={"help": "The link, as both hubs call it: an invitation names it."})
    send: tuple[str, ...] = field(default=(), metadata={
        "help": "Filters of the addresses that go out; none, and nothing does."})
    receive: tuple[str, ...] = field(default=(), metadata={
        "help": "Filters of the addresses that may come in, as the other hub calls them; none, and nothing does."})
    rename: tuple[str, ...] = field(default=(), metadata={
        "help": "What comes in is called otherwise here: `plant/# -> sites/factory/plant/#`. The first that matches "
                "holds."})
    tenant: str = field(default="/", metadata={"help": "The tenant whose topics the link is about."})
    user: str = field(default="", metadata={
        "help": "User under whose rights messages come in; left out, `receive` alone says what may."})
    start: str = field(default="earliest", metadata={
        "choices": ("earliest", "now"),
        "help": "Where topics that exist when the link is first up begin: with what is stored of them, or with what "
                "comes from then on."})
    forward: bool = field(default=False, metadata={
        "help": "Whether what came over other links goes out over this one too; never to where it has been."})
    on_refused: str = field(default="park", metadata={
        "choices": ("park", "stop"),
        "help": "What becomes of a message that this hub cannot take (size, right, name): it is parked in the topic "
                "`relay-parked` with the reason, or the link stops."})
    on_lost: str = field(default="stop", metadata={
        "choices": ("stop", "go_on"),
        "help": "What happens where retention has deleted what the other hub does not have yet, or where that hub has "
                "what this one no longer knows since it was restored from an older copy: the link stops, or goes on "
                "with what is here; either is listed on both hubs."})
    replies: str = field(default="", metadata={
        "help": "Address under which queues of this hub are answered over the link, `answers/queues`: a request that "
                "goes out with a queue as its reply-to names an address below it instead, and what comes in there goes "
                "into that queue, and nothing into others. `receive` has to match it. Left out, a queue is answered "
                "on its own hub alone."})
    compress: str = field(default="none", metadata={
        "choices": ("none", "zstd"),
        "help": "Whether what goes out is compressed for the link, where the other hub can read it: for a narrow way. "
                "Batches that a producer compressed stay so either way."})
    spool: bool = field(default=False, metadata={
        "help": "Whether letters of this link may be kept at the meeting point while their reader is away: what this "
                "hub sends, and what it is sent. Both hubs say so, and the meeting point (`spool_bytes`)."})
    bytes_per_second: int = field(default=0, metadata={
        "min": 0, "max": 1 << 40, "help": "Bytes that go out in a second at most; 0: as many as can."})
    messages_per_second: int = field(default=0, metadata={
        "min": 0, "max": 1 << 40, "help": "Messages that go out in a second at most; 0: as many as can."})
    hours: str = field(default="", metadata={
        "help": "When messages go out, `HH:MM-HH:MM` in UTC, over midnight too; left out, always."})

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", self.name):
            raise ValueError(f"{self.name!r} is no name of a link: letters, digits, '.', '_', '-', at most 64")
        try:
            Filters((*self.send, *self.receive))
        except InvalidFilter as error:
            raise ValueError(str(error)) from None
        renames_of(self.rename)
        if self.replies and not self._hears_replies():
            raise ValueError(f"replies: {self.replies!r} is no address, or `receive` does not match what is below it")
        if self.hours and not HOURS.fullmatch(self.hours):
            raise ValueError(f"hours: {self.hours!r} is not HH:MM-HH:MM")


    def _hears_replies(self) -> bool:
        below = f"{self.replies}/tag/queue"
        return (is_address(below) and {"+", "#", "..", "."}.isdisjoint(self.replies.split("/"))
                and Filters(self.receive).match(below))


def renames_of(lines: tuple[str, ...]) -> Renames:
    """Raises ValueError."""
    pairs = []
    for line in lines:
        source, arrow, target = (part.strip() for part in line.partition(ARROW))
        if not arrow:
            raise ValueError(f"{line!r} is no rename: FILTER {ARROW} FILTER")
        pairs.append((source, target))
    return Renames(pairs)


def is_open(hours: str, wall_ms: int) -> bool:
    """Whether it is one of these hours."""
    match = HOURS.fullmatch(hours)
    if match is None:
        return True
    start, stop = (int(hour) * 60 + int(minute) for hour, minute in (match.group(1, 2), match.group(3, 4)))
    minute = wall_ms % DAY_MS // MINUTE_MS
    return start <= minute < stop if start < stop else minute >= start or minute < stop


def check_pace(bytes_per_second: int) -> None:
    """Raises ValueError for less than lets a letter pass in time."""
    if 0 < bytes_per_second < LEAST_PACE:
        raise ValueError(f"bytes_per_second: with less than {LEAST_PACE} letters would wait for too long")


@dataclass(frozen=True, slots=True)
class MeetingSection:
    """[relay] of a meeting point's file."""

    name: str = field(metadata={"help": "The host name in the URL that hubs dial: hubs prove themselves to this name."})
    listen: str = field(default="127.0.0.1:8443", metadata={"help": "`HOST:PORT`; port 0 takes a free one."})
    cert: str | None = field(default=None, metadata={
        "help": "File with the certificate chain, PEM. Left out, there is no TLS: only on loopback, or behind "
                "something that ends it."})
    key: str | None = field(default=None, metadata={"help": "File with the certificate's key, PEM."})
    plain: bool = field(default=False, metadata={
        "help": "Whether it may listen without TLS on more than loopback."})
    max_frame_bytes: int = field(default=16 << 20, metadata={
        "min": LEAST_FRAME_BYTES, "max": 1 << 28, "help": "Largest frame that is carried, in bytes."})
    waiting_bytes: int = field(default=16 << 20, metadata={
        "min": 1 << 20, "max": 1 << 34,
        "help": "Bytes that may wait here for one hub; what comes beyond is bounced, and its link begins anew."})
    bytes_per_second: int = field(default=0, metadata={
        "min": 0, "max": 1 << 40,
        "help": "Bytes that are carried in a second at most, of all links; at least 65536, or 0: as many as can."})
    spool: str | None = field(default=None, metadata={
        "help": "Folder for letters that are kept for hubs which are away, as far as `spool_bytes` of a link says. "
                "Left out, nothing is kept."})
    max_hubs: int = field(default=1_000, metadata={"min": 1, "max": 100_000, "help": "Hubs connected at once."})

    def __post_init__(self) -> None:
        check_pace(self.bytes_per_second)


@dataclass(frozen=True, slots=True)
class MetHub:
    """[[hubs]] of a meeting point's file."""

    name: str = field(metadata={"help": "What the hub is called in this file and in the log."})
    keys: tuple[str, ...] = field(metadata={
        "min": 1, "help": "Its key, as `gatehouse relay key` prints it; two while one replaces the other."})

    def __post_init__(self) -> None:
        for key in self.keys:
            if not KEY.fullmatch(key):
                raise ValueError(f"{key[:80]!r} is no key: 64 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class MetLink:
    """[[links]] of a meeting point's file."""

    hubs: tuple[str, ...] = field(metadata={"min": 2, "max": 2, "help": "Names of the two hubs that may talk."})
    topics: tuple[str, ...] = field(default=(), metadata={
        "help": "Topics that may pass, either way, by name, `*` at the end for what begins so; none, and none does."})
    spool_bytes: int = field(default=0, metadata={
        "min": 0, "max": 1 << 44,
        "help": "Bytes that are kept each way while the reader is away, where both hubs ask for it; 0: none."})
    spool_hours: int = field(default=24, metadata={
        "min": 1, "max": 744,
        "help": "How long a letter is kept. Once one is older, all of that way are dropped, and nothing is kept until "
                "the reader has been here."})
    bytes_per_second: int = field(default=0, metadata={
        "min": 0, "max": 1 << 40,
        "help": "Bytes that are carried in a second at most, both ways together; at least 65536, or 0: as many as can. "
                "What is too much waits; how many messages go out is said at the hubs."})

    def __post_init__(self) -> None:
        check_pace(self.bytes_per_second)
