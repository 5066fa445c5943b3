"""What Kafka clients ask for and this door takes without effect; see `gateways.not_honoured`."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.kernel.records.batch import HEADER_BYTES

if TYPE_CHECKING:
    from gatehouse.gateways.kafka.session import KafkaSession

DELIVER_AT: Final = "deliver-at"
NOT_HONOURED: Final = {
    DELIVER_AT: "a batch is stored as it was sent, and its records can be read at once; delays are for HTTP and MQTT"}
"""What clients ask for without effect, and what happens instead."""

LOOKED_AT_BYTES: Final = 4096          # of a batch, some 4 µs: who delays records delays the first one
_NAMED: Final = b"\x14" + DELIVER_AT.encode()              # a header's name as it lies in a record, behind its length


def note_delay(session: KafkaSession, batch: bytes) -> None:
    """Look whether the sender wants records of a batch to come later. Those that are compressed are not looked into."""
    if batch.find(_NAMED, HEADER_BYTES, LOOKED_AT_BYTES) >= 0:
        client = f"{session.client_id}@{session.link.peer.rpartition(':')[0]}"
        session.services.not_honoured.note("kafka", DELIVER_AT, NOT_HONOURED[DELIVER_AT], client)
