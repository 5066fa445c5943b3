"""What a device with amqtt's client does: subscribe with a session that is kept, go, come back, print what it has
missed, and answer each with QoS 2.

    python amqtt_sleeper.py ADDRESS CLIENT_ID FILTER QOS COUNT

It prints "subscribed" once its filter stands, then one line for each message: topic, QoS, value.
"""
from __future__ import annotations

import asyncio
import sys

from amqtt.client import MQTTClient

WAIT_S = 60


async def main(address: str, client_id: str, topic_filter: str, qos: int, count: int) -> None:
    client = MQTTClient(client_id=client_id, config={"auto_reconnect": False})
    await client.connect(address, cleansession=False)
    await client.subscribe([(topic_filter, qos)])
    print("subscribed", flush=True)
    for _ in range(count):
        message = await client.deliver_message(timeout_duration=WAIT_S)
        assert message is not None
        value = bytes(message.data)
        print(message.topic, message.qos, value.decode())
        await client.publish("answers/" + client_id, value, qos=2)
    await client.disconnect()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
