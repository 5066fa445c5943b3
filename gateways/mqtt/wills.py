"""Wills of MQTT clients as the kernel keeps them: it publishes them when connections break, and when the hub has."""
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.wills import WillPublisher
from gatehouse.gateways.mqtt import mapping, properties
from gatehouse.kernel.sessions.session_values import Will as KeptWill

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services
    from gatehouse.gateways.mqtt.packets import Will

DOOR_NAME: Final = "mqtt"


def kept_will(will: Will, tenant: str, client_id: str, user: str, expiry_ms: int) -> KeptWill:
    """What the kernel keeps of a will. It is due after its delay, or with the end of its session [MQTT5-3.1.3-9], which
    is that of the connection where `expiry_ms` is 0."""
    given = will.properties
    if properties.EXPIRY in given.values:                      # it counts from when the will is published
        timeless = replace(given, values={name: value for name, value in given.values.items()
                                          if name != properties.EXPIRY})
        will = will._replace(properties=timeless)
    _, value, headers, attributes, timestamp_ms = mapping.will_message(will, 0, 0)
    delay_ms = given.number(properties.WILL_DELAY) * 1000
    return KeptWill(tenant, client_id, user, mapping.decode_topic(will.topic), value or b"", headers, attributes,
                    delay_ms if expiry_ms else 0,
                    given.number(properties.EXPIRY) * 1000, timestamp_ms)


def publish_wills(services: Services) -> None:
    """The door is open: wills that are due are published by it."""
    publisher = WillPublisher(services.kernel, services.admission, DOOR_NAME, services.wall_ms)
    services.kernel.sessions.publish_wills(publisher.publish)
