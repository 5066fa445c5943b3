"""The Kafka door: stock Kafka clients produce to the hub's topics and fetch from them."""
from __future__ import annotations

from typing import Final

from gatehouse.gateways.contract import CONTRACT, GatewaySpec
from gatehouse.gateways.kafka.column import KAFKA, SPELLING
from gatehouse.gateways.kafka.config import KafkaConfig
from gatehouse.gateways.kafka.session import KafkaSession

GATEWAY: Final = GatewaySpec(
    name="kafka",
    contract=CONTRACT,
    door=0,
    config=KafkaConfig,
    default_listen=("127.0.0.1:9092",),
    session=KafkaSession,
    columns=(KAFKA,),
    spelling=SPELLING,
)
