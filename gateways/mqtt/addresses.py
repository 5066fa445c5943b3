"""How MQTT spells an address: as it is, a topic name is an address. Pure."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.addresses import Spelling
from gatehouse.kernel.addresses.address import check_address


def address_of_mqtt(name: str) -> str:
    """Raises InvalidAddress for what is no topic name [MQTT-4.7.3-1, 4.7.3-2, 3.3.2-2]."""
    check_address(name)
    return name


SPELLING: Final = Spelling("MQTT", address_of_mqtt, lambda place: [place.address],
                           lambda place: {"topic_name": place.address})
