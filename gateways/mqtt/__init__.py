"""The MQTT door: 3.1, 3.1.1 and 5.0, QoS 0, 1 and 2. What it does not do is in README.md."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gatehouse.gateways.admission.guarded_session import WillPublisher
from gatehouse.gateways.contract import CONTRACT, GatewaySpec, WebSocketRoute
from gatehouse.gateways.mqtt.codec import DOOR
from gatehouse.gateways.mqtt.column import MQTT3, MQTT5, SPELLING
from gatehouse.gateways.mqtt.config import MqttConfig, connection_settings
from gatehouse.gateways.mqtt.session import MqttSession

if TYPE_CHECKING:
    from gatehouse.gateways.contract import Services

DOOR_NAME: Final = "mqtt"
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")


def publish_wills(services: Services) -> None:
    """The door is open: wills that are due are published by it."""
    publisher = WillPublisher(services.kernel, services.admission, DOOR_NAME, services.wall_ms)
    services.kernel.sessions.publish_wills(publisher.publish)


# decision 281: why this door, and not a broker that there is
GATEWAY = GatewaySpec(name=DOOR_NAME, contract=CONTRACT, door=DOOR, config=MqttConfig,
                      default_listen=("127.0.0.1:1883",), session=MqttSession,
                      opened=publish_wills, columns=(MQTT3, MQTT5), spelling=SPELLING,
                      connection_settings=connection_settings,
                      websockets=(WebSocketRoute("/mqtt", SUBPROTOCOLS), WebSocketRoute("/", SUBPROTOCOLS)))
