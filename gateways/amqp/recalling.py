"""Messages that wait at a delayed-message exchange: their sender learns their ids, and recalls them. Pure.

    basic.publish with x-delay, x-delay-key = KEY   waits under a name that is the sender's own, as others may, too
    basic.consume from $delay.told                  tells this connection of its own: {"id", "ids", "key", "channel",
                                                    "delivery_tag"}, before the confirm; and what came of its recalls:
                                                    {"recalled": [ids]}, {"code", "detail"}, with the id or key
    basic.publish to the key $delay.recall          {"id": "..."} or {"key": "..."}; confirmed when durable, refused by
    (default exchange)                              basic.nack: delivered, unknown, or somebody else's

A key recalls all that waits under it, a thousand messages at once. It is the user's: others have keys of their own.
"""
# decision 229
from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.amqp.errors import precondition
from gatehouse.gateways.amqp.telling import NoticeConsumer, tell
from gatehouse.kernel.errors import KernelError, UnknownScheduled

if TYPE_CHECKING:
    from gatehouse.gateways.amqp.channel import Channel
    from gatehouse.gateways.amqp.tables import Table
    from gatehouse.kernel.message import Stored
    from gatehouse.kernel.scheduling.queries import Scheduled

TOLD: Final = "$delay.told"
RECALL: Final = "$delay.recall"
DELAY_KEY: Final = "x-delay-key"
KEY_BYTES_MAX: Final = 255
REQUEST_BYTES_MAX: Final = 1_024
ID_DIGITS_MAX: Final = 20
RECALLED_EVENT: Final = "delay_recalled"


class InvalidRecall(ValueError):
    """What came asks for nothing to be recalled."""

    code: ClassVar[str] = "invalid_recall"


class DelayListener(NoticeConsumer):
    """A consumer of `$delay.told`. Everybody may be told of what is his own."""

    def allowed(self) -> bool:
        return True


def read_key(headers: Table) -> str:
    """The name under which a message waits; "": none. Raises ChannelFault 406."""
    field = headers.get(DELAY_KEY)
    if field is None:
        return ""
    try:
        if field.type == "S" and 0 < len(field.value) <= KEY_BYTES_MAX:
            key: str = field.value.decode()
            return key
    except UnicodeDecodeError:
        pass                      # refused like one of the wrong size
    raise precondition(f"the header {DELAY_KEY} is UTF-8 text of 1 to {KEY_BYTES_MAX} bytes")


def tell_accepted(channel: Channel, tag: int, key: str, stored: Stored) -> None:
    """A message waits: its sender may want to know the id."""
    if stored.error is None and stored.positions:
        ids = [str(position[2]) for position in stored.positions]
        _note(channel, {"id": ids[0], "ids": ids, "key": key or None, "channel": channel.number, "delivery_tag": tag})


def recall(channel: Channel, tag: int, body: bytes) -> None:
    """Take a publish to `$delay.recall`. Nothing that comes behind it on its connection is confirmed before it."""
    connection = channel.connection
    try:
        asked = _read(body)
    except InvalidRecall as error:
        _note(channel, {"id": None, "code": error.code, "detail": str(error)})
        channel.publishing.confirm(tag, nack=True)
        return
    waiting = _Recall(channel, tag, asked)
    connection.hold()

    def ask() -> None:                         # what was published before waits by now
        try:
            if "key" in asked:
                connection.guard.schedule.recall_named(asked["key"], waiting, None)
            else:
                connection.guard.schedule.show(int(asked["id"]), recall_shown)
        except KernelError as error:
            waiting.end(error, [])

    def recall_shown(message: Scheduled | None) -> None:
        try:
            if message is None:
                raise UnknownScheduled(f"nothing that waits, or waited within a day, has the id {asked['id']}")
            connection.guard.schedule.recall(message, waiting, None)
        except (KernelError, Denied) as error:
            waiting.end(error, [])

    connection.broker.queues.when_flushed(ask)


class _Recall:
    """Who asked for a recall; a `Submitter`."""

    def __init__(self, channel: Channel, tag: int, asked: dict[str, str]) -> None:
        self._channel = channel
        self._tag = tag
        self._asked = asked

    def on_stored(self, stored: list[Stored]) -> None:
        for answer in stored:
            ids = [str(position[2]) for position in answer.positions] if "key" in self._asked else [self._asked["id"]]
            self.end(answer.error, ids)

    def end(self, error: Exception | None, ids: list[str]) -> None:
        """It is done, or refused."""
        channel = self._channel
        if error is None:
            channel.connection.guard.count(RECALLED_EVENT, len(ids))
            _note(channel, {**self._asked, "recalled": ids})
        else:
            _note(channel, {**self._asked, "code": getattr(error, "code", "internal_error"), "detail": str(error)})
        if not channel.closing:
            channel.publishing.confirm(self._tag, nack=error is not None)
        channel.connection.go_on()


def _note(channel: Channel, document: dict[str, Any]) -> None:
    if not tell(channel, TOLD, document):
        channel.connection.guard.count("notice_dropped")


def _read(body: bytes) -> dict[str, str]:
    """{"id"} or {"key"}. Raises InvalidRecall."""
    try:
        document = orjson.loads(body) if len(body) <= REQUEST_BYTES_MAX else None
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict) and len(document) == 1:
        given = str(document.get("id", ""))
        if given.isascii() and given.isdigit() and len(given) <= ID_DIGITS_MAX and not int(given) >> 64:
            return {"id": given}
        key = document.get("key")
        if isinstance(key, str) and 0 < len(key.encode(errors="replace")) <= KEY_BYTES_MAX:
            return {"key": key}
    raise InvalidRecall('what is recalled is {"id": "..."} or {"key": "..."}')
