"""Delayed messages that their sender takes back, by a PUBLISH to `$recall`:

    the key that they were sent with      PUBLISH `$delayed/SECONDS/$key/KEY/ADDRESS`, or the user property `recall-key`
    {"key": "..."}                        the same
    {"id": "..."}                         the id that PUBACK told (MQTT 5), or the HTTP door

It is acknowledged when that is durable; what there is no more of is acknowledged, and counted, or refused in MQTT 5. A
key is its user's own; an id takes the right to publish at the message's address. Until it is known what came of it the
client is not read: its acknowledgement has its turn before anything that comes behind it.
"""
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from gatehouse.gateways.admission.errors import Denied
from gatehouse.gateways.mqtt.codec import packet_id_of
from gatehouse.gateways.mqtt.errors import InvalidRecallPublish
from gatehouse.kernel.errors import AlreadyDelivered, UnknownScheduled

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.door_side import Pacer
    from gatehouse.gateways.mqtt.inbox import Inbox
    from gatehouse.kernel.message import Stored
    from gatehouse.kernel.scheduling.queries import Scheduled

KEY_BYTES_MAX: Final = 255
MAX_ID: Final = (1 << 64) - 1
NOT_RECALLED: Final = (Denied, UnknownScheduled, AlreadyDelivered)


class Recalling:
    """One client's. The switchboard's `Submitter`; its tokens are the PUBLISH packets that wait."""

    def __init__(self, services: Services, inbox: Inbox, pacer: Pacer) -> None:
        self._services = services
        self._inbox = inbox
        self._pacer = pacer

    def recall(self, packet: bytes, value: bytes) -> None:
        """Take a PUBLISH to `$recall`, whose payload this is. Raises InvalidRecallPublish."""
        key, message_id = read_recall(value)
        self._pacer.hold()
        guard = self._inbox.guard
        if message_id < 0:
            guard.schedule.recall_named(key, self, packet)
        else:
            guard.schedule.show(message_id, partial(self._on_shown, packet, message_id))

    def _on_shown(self, packet: bytes, message_id: int, message: Scheduled | None) -> None:
        try:
            if message is None:
                raise UnknownScheduled(f"nothing that waits or waited within a day has the id {message_id}")
            self._inbox.guard.schedule.recall(message, self, packet)
        except NOT_RECALLED as error:
            self._answer(packet, error)

    def on_stored(self, stored: list[Stored]) -> None:
        """It is durable, or there was nothing to recall."""
        for answer in stored:
            assert isinstance(answer.token, bytes), "the packet that asked"
            self._answer(answer.token, answer.error)

    def _answer(self, packet: bytes, error: Exception | None) -> None:
        if error is None or isinstance(error, NOT_RECALLED):
            if packet_id_of(packet, 0) or error is not None:
                self._inbox.answer_late(packet, error)
            self._pacer.go_on(self._services.now_ms())
        else:
            self._inbox.refuse(error)


def read_recall(value: bytes) -> tuple[str, int]:
    """The key, or else the id: "" and -1 for the other. Raises InvalidRecallPublish."""
    try:
        document = orjson.loads(value) if value.startswith(b"{") else {"key": value.decode()}
    except ValueError:
        raise InvalidRecallPublish("a payload that is neither a key nor JSON") from None
    key, message_id = document.get("key"), document.get("id")
    if isinstance(key, str) and message_id is None and is_recall_key(key):
        return key, -1
    if isinstance(message_id, str) and key is None and message_id.isascii() and message_id.isdigit() \
            and len(message_id) <= 20 and int(message_id) <= MAX_ID:
        return "", int(message_id)
    raise InvalidRecallPublish('the payload is a key, {"key": "..."}, or {"id": "..."}')


def is_recall_key(key: str) -> bool:
    """Whether a delayed message can have this key: one level of a topic."""
    return bool(key) and len(key.encode()) <= KEY_BYTES_MAX and "\0" not in key
