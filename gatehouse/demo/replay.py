"""A day's worth of this machine's telemetry in seconds: readings taken now, repeated with the times of a whole day.

    python -m gatehouse.demo.replay --kafka 127.0.0.1:9092 --hours 24

It goes through the Kafka door, where a message can say when it was made; keys and values are those of the device.
"""
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
from confluent_kafka import Producer

from gatehouse.demo.device import value_of
from gatehouse.demo.telemetry import ROOT, Reading, Telemetry

SAMPLES: Final = 20
SAMPLE_EVERY_S: Final = 0.1
FLUSH_S: Final = 60.0
HOUR_S: Final = 3600


class NotStored(click.ClickException):
    """Some messages of a replay were not acknowledged."""


def sample(count: int = SAMPLES, every_s: float = SAMPLE_EVERY_S) -> list[list[Reading]]:
    """Some seconds' readings, taken faster than once a second."""
    telemetry = Telemetry(time.monotonic())
    taken = []
    for _ in range(count):
        time.sleep(every_s)
        taken.append(telemetry.read(time.monotonic()))
    return taken


def replayed(samples: Sequence[Sequence[Reading]], first_ms: int, seconds: int) -> Iterator[tuple[str, str, int]]:
    """Key, value and time of every message: each second the next sample, over and over."""
    texts = [[(address.removeprefix(f"{ROOT}/"), value_of(value)) for address, value in readings]
             for readings in samples]
    for second in range(seconds):
        for key, value in texts[second % len(texts)]:
            yield key, value, first_ms + second * 1000


def replay(kafka: str, first_ms: int, seconds: int) -> int:
    """Publish so many seconds of telemetry; how many messages are stored. Raises NotStored."""
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random", "enable.idempotence": True,
                         "linger.ms": 20, "compression.type": "lz4", "delivery.report.only.error": True,
                         "queue.buffering.max.messages": 200_000})
    count = 0
    for key, value, at_ms in replayed(sample(), first_ms, seconds):
        while not _produced(producer, key, value, at_ms, refused):
            producer.poll(0.1)
        count += 1
    left = producer.flush(FLUSH_S)
    if left or refused:
        raise NotStored(f"{left + len(refused)} of {count} messages were not stored: "
                        f"{refused[0] if refused else 'the hub does not answer'}")
    return count


def _produced(producer: Producer, key: str, value: str, at_ms: int, refused: list[Any]) -> bool:
    """Whether the producer took it; not while its buffer is full."""
    try:
        producer.produce(ROOT, value, key, timestamp=at_ms, on_delivery=lambda error, _: refused.append(error))
    except BufferError:
        return False
    return True


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kafka", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT", help="The hub's Kafka door.")
@click.option("--hours", type=click.FloatRange(min=0.0), default=24.0, show_default=True, help="How much telemetry.")
def main(kafka: str, hours: float) -> None:
    """Store a day's worth of this machine's telemetry, ending now."""
    began = time.monotonic()
    seconds = round(hours * HOUR_S)
    count = replay(kafka, time.time_ns() // 1_000_000 - seconds * 1000, seconds)
    took_s = time.monotonic() - began
    click.echo(f"stored {count:,} messages of {hours:g} hours in {took_s:.1f} s, {count / took_s:,.0f} a second")


if __name__ == "__main__":
    main(prog_name="replay")
