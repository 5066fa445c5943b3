"""Transactions of a channel with pika against a real hub: all or nothing, also where it is killed at a commit."""
from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from tests.interop.test_amqp import bodies, channel, connect, declare, hub
from tests.running_hub import RunningHub, running_hub
from tests.waiting import until

__all__ = ["channel", "hub"]           # fixtures

MESSAGES = 600
AT_ONCE = 10
KILLS = 3


def test_what_a_transaction_moves_is_in_one_queue_or_the_other(hub: RunningHub) -> None:
    connection = connect(hub)
    mover = connection.channel()
    first, second = (declare(mover, exclusive=True) for _ in range(2))
    mover.basic_publish("", first, b"1")
    mover.tx_select()
    method, _, body = mover.basic_get(first)
    mover.basic_publish("", second, body)
    mover.basic_ack(method.delivery_tag)
    mover.tx_rollback()
    mover.basic_ack(method.delivery_tag)
    mover.basic_publish("", second, body)
    mover.tx_commit()
    looker = connection.channel()
    assert (bodies(looker, first), bodies(looker, second)) == ([], [b"1"])
    connection.close()


def test_a_channel_without_transactions(hub: RunningHub) -> None:
    connection = connect(hub)
    with pytest.raises(ChannelClosedByBroker, match="channel is not transactional"):
        connection.channel().tx_commit()
    assert connection.is_open
    connection.close()


def _move(channel: BlockingChannel, committed: list[bytes]) -> None:
    """Message by message, some in each transaction, until the hub is gone."""
    try:
        channel.tx_select()
        while True:
            moved = []
            for _ in range(AT_ONCE):
                method, properties, body = channel.basic_get("from")
                if method is None:
                    break
                channel.basic_publish("", "to", body, properties)
                channel.basic_ack(method.delivery_tag)
                moved.append(body)
            channel.tx_commit()
            committed += moved
            if not moved:
                return
    except (AMQPError, ConnectionError):
        return


def test_a_hub_that_is_killed_at_commits_has_done_each_whole_or_not_at_all(tmp_path: Path) -> None:
    everything = {b"%d" % number for number in range(MESSAGES)}
    committed: list[bytes] = []
    for kill in range(KILLS):
        with running_hub(tmp_path, "amqp") as hub:
            channel = connect(hub).channel()
            if not kill:
                for queue in ("from", "to"):
                    channel.queue_declare(queue, durable=True)
                channel.tx_select()
                for body in everything:
                    channel.basic_publish("", "from", body)
                channel.tx_commit()
            before = len(committed)
            mover = Thread(target=_move, args=(channel, committed))
            mover.start()
            until(lambda at=before: len(committed) > at + 5 * AT_ONCE)      # type: ignore[misc]
            hub.kill()
            mover.join()
        with running_hub(tmp_path, "amqp") as hub:
            looker = connect(hub).channel()
            looker.tx_select()                 # and never commits: nothing is taken out
            left, arrived = _peek(looker, "from"), _peek(looker, "to")
            assert len(left) + len(arrived) == MESSAGES and {*left, *arrived} == everything
            assert {*committed} <= {*arrived}
            assert len(arrived) % AT_ONCE == 0
            hub.kill()


def _peek(channel: BlockingChannel, queue: str) -> list[bytes]:
    count = channel.queue_declare(queue, passive=True).method.message_count
    found: list[bytes] = []
    channel.basic_consume(queue, lambda _channel, _method, _properties, body: found.append(body))
    until(lambda: (channel.connection.process_data_events(0.01), len(found) >= count)[1])
    return found
