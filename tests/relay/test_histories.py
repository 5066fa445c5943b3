"""A hub that was restored from an older copy, or a topic that is made anew: nothing is passed over in silence."""
from __future__ import annotations

import copy
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gatehouse.relay.histories import Losses
from gatehouse.relay.settings import LinkSettings
from tests.kernel.batches import batch_of
from tests.relay.network import Network, TestHub
from tests.relay.test_messages import passed_on
from tests.relay.test_spool import come, leave, spooled_pair

A = "plant/a"


def pair(on_lost: str = "stop") -> tuple[Network, TestHub, TestHub]:
    rng = random.Random(7)
    left = TestHub("left", [LinkSettings("link", send=("plant/#",), on_lost=on_lost)], rng)
    right = TestHub("right", [LinkSettings("link", receive=("plant/#",))], rng)
    network = Network(left, right, rng=rng)
    network.join(left, right, "link")
    network.settle()
    return network, left, right


def publish(network: Network, hub: TestHub, *values: str) -> None:
    for value in values:
        hub.rig.publish(A, value.encode())
        network.settle(2)
    network.settle()


def copy_of(hub: TestHub) -> tuple[Any, Any]:
    """As a backup has it."""
    hub.rig.run()
    return copy.deepcopy((hub.rig.log, hub.rig.store))


def restore(network: Network, hub: TestHub, kept: tuple[Any, Any]) -> None:
    """The hub is gone, and one stands there with what the backup had."""
    hub.rig.log, hub.rig.store = copy.deepcopy(kept)
    network.cut(hub)
    hub.crash()


def numbers(first: int, end: int, history: str = "") -> list[str]:
    return [f"{number}{history}" for number in range(first, end)]


def came(hub: TestHub) -> list[str]:
    return [record[3].decode() for record in hub.rig.read("plant")]


def listed(hub: TestHub, way: str) -> list[tuple[str, int, int]]:
    return [(loss["why"], loss["first"], loss["count"])
            for loss in hub.links.describe_link("link")[way]["lost_ranges"]]


def parted(network: Network, left: TestHub, right: TestHub, grown: int) -> None:
    """The sender is what it was at 3 of 6 messages, and so many others have been published since."""
    publish(network, left, *numbers(0, 3))
    kept = copy_of(left)
    publish(network, left, *numbers(3, 6))
    assert came(right) == numbers(0, 6)
    leave(network, right)
    restore(network, left, kept)
    publish(network, left, *numbers(3, 3 + grown, " again"))
    come(network, right)
    network.settle(20)


@pytest.mark.parametrize("grown", [0, 2, 3, 5], ids=["not grown", "behind", "as far", "past it"])
def test_a_sender_that_was_restored_stops_the_link_on_both_sides(grown: int) -> None:
    network, left, right = pair()
    parted(network, left, right, grown)
    assert left.state("link") == right.state("link") == "stopped"
    fault = left.links.describe_link("link")["fault"]
    assert fault.startswith("history_parted" if grown >= 3 else "position_ahead")
    assert fault in right.links.describe_link("link")["fault"]
    assert came(right) == numbers(0, 6), "nothing more was taken"


@pytest.mark.parametrize("grown", [0, 2, 3, 5])
@pytest.mark.parametrize("by_hand", [False, True], ids=["configured", "by hand"])
def test_and_goes_on_with_what_it_has_by_a_choice(grown: int, by_hand: bool) -> None:
    network, left, right = pair("stop" if by_hand else "go_on")
    parted(network, left, right, grown)
    if by_hand:
        left.links.resume("link", go_on=True)
        right.links.resume("link")
        network.settle(12)
    publish(network, left, "then")
    for hub in (left, right):
        hub.crash()
    publish(network, left, "and then")
    network.settle(20)
    assert (left.state("link"), right.state("link")) == ("open", "open"), left.links.describe_link("link")
    now = [*numbers(0, 3), *numbers(3, 3 + grown, " again"), "then", "and then"]
    assert Counter(came(right)) >= Counter(now), "everything of the history that is"
    assert Counter(came(right)) - Counter(now) <= Counter(numbers(2, 6)), "and of the other only what had come"
    for hub, way in ((left, "sent"), (right, "received")):
        (why, first, count), = listed(hub, way)
        assert why == "parted" and first in (2, 3) and first + count == 6
        assert ("link", "history") in [event[:2] for event in hub.events]


def test_a_reader_that_was_restored_is_sent_again_what_it_lost() -> None:
    network, left, right = pair()
    publish(network, left, *numbers(0, 3))
    kept = copy_of(right)
    publish(network, left, *numbers(3, 6))
    restore(network, right, kept)
    publish(network, left, "6")
    network.settle(20)
    assert came(right) == numbers(0, 7)
    (why, first, count), = listed(left, "sent")
    assert why == "sent_again" and 3 <= first + count <= 6


def test_a_reader_from_before_the_first_message_is_sent_all_of_it() -> None:
    network, left, right = pair()
    kept = copy_of(right)
    publish(network, left, *numbers(0, 3))
    restore(network, right, kept)
    publish(network, left, "3")
    network.settle(20)
    assert came(right) == numbers(0, 4)


def test_letters_that_were_kept_do_not_hide_what_a_restored_reader_lost(tmp_path: Path) -> None:
    """They follow on what its copy does not know: the sender has to send that first."""
    network, left, right = spooled_pair(tmp_path)
    kept = copy_of(right)
    publish(network, left, *numbers(0, 3))
    leave(network, right)
    publish(network, left, *numbers(3, 5))
    leave(network, left)
    restore(network, right, kept)
    come(network, right)
    assert right.links.describe_link("link")["spool"]["passed_over"]
    come(network, left)
    network.settle(20)
    assert came(right) == numbers(0, 5)


def test_what_was_not_noted_is_no_other_history() -> None:
    """The sender is killed before it has noted what the reader has: batches of producers, too."""
    network, left, right = pair()
    topic = left.rig.kernel.create_topic("plant", partitions=1)
    left.rig.run()
    network.settle()
    for number in range(4):
        batch = batch_of([(b"a", b"%d" % (3 * number + at), []) for at in range(3)])
        if number % 2:
            left.rig.kernel.append_batch(topic.partition_id(0), batch, left.rig.witness)
        else:
            for at in range(3):
                left.rig.publish(A, b"%d" % (3 * number + at))
        kept = copy_of(left)
        network.settle(12)
        assert len(came(right)) == 3 * number + 3
        restore(network, left, kept)
        network.settle(20)
        assert left.state("link") == right.state("link") == "open", left.links.describe_link("link")
    assert came(right) == numbers(0, 12)
    assert listed(left, "sent") == listed(right, "received") == []


def test_kept_letters_of_another_history_are_passed_over(tmp_path: Path) -> None:
    network, left, right = spooled_pair(tmp_path)
    publish(network, left, *numbers(0, 3))
    kept = copy_of(left)
    publish(network, left, *numbers(3, 6))
    leave(network, right)
    restore(network, left, kept)
    publish(network, left, *numbers(3, 10, " again"))
    leave(network, left)
    come(network, right)
    assert came(right) == numbers(0, 6)
    assert set(right.links.describe_link("link")["spool"]["passed_over"]) == {"parted"}
    network.cut(right)
    network.settle()
    come(network, left)
    network.settle(20)
    assert left.state("link") == right.state("link") == "stopped"
    left.links.resume("link", go_on=True)
    right.links.resume("link")
    network.settle(20)
    assert came(right) == [*numbers(0, 6), *numbers(3, 10, " again")]


def test_what_a_restored_hub_passes_on_again_is_a_repetition() -> None:
    network, first, middle, last = passed_on(on_lost="go_on")
    publish(network, first, *numbers(0, 3))
    kept = copy_of(middle)
    publish(network, first, *numbers(3, 6))
    restore(network, middle, kept)
    publish(network, first, "6")
    network.settle(20)
    assert came(last) == came(middle) == numbers(0, 7)


def test_a_topic_that_is_made_anew_is_listed_on_both_sides() -> None:
    network, left, right = pair()
    publish(network, left, *numbers(0, 3))
    left.rig.kernel.delete_topic("plant")
    network.settle(3)
    publish(network, left, "new")
    network.cut(left)
    network.settle(20)
    assert came(right) == [*numbers(0, 3), "new"]
    assert ("topic_gone", 3, 0) in listed(left, "sent") and ("topic_gone", 3, 0) in listed(right, "received")


def test_what_is_listed_is_bounded_and_survives() -> None:
    network, left, right = pair("go_on")
    parted(network, left, right, 5)
    before = listed(left, "sent")
    assert before
    left.crash()
    assert listed(left, "sent") == before
    losses = left.links.links["link"].lost_out
    assert isinstance(losses, Losses)
    for number in range(300):
        losses.note(losses.listed[0].__class__("deleted", "plant", 0, number, 1, 1))
    assert len(losses.listed) == 100 and losses.listed[-1].first == 299
