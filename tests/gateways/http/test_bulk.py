"""Reading in bulk: positions of topics, and pieces of many partitions in one answer."""
from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import orjson
import pytest

from gatehouse.gateways.admission.admission import Admission
from gatehouse.gateways.admission.decision import Operation
from gatehouse.kernel.message import Piece
from gatehouse.kernel.records.batch import decode_records
from gatehouse.kernel.records.pieces import BYTES_PER_HEAD
from tests.gateways.http.fake_kernel import NOW_MS, FakeKernel
from tests.gateways.http.kit import Client, run_door

POSITIONS, FETCH = "/v1/batches/positions", "/v1/batches/fetch"


def filled(count: int = 10, partitions: int = 2) -> FakeKernel:
    kernel = FakeKernel(default_partitions=partitions)
    for number in range(count):
        kernel.publish(f"plant/{number}", b"%d" % number, timestamp_ms=NOW_MS + number * 1000)
    return kernel


def opened(body: bytes) -> tuple[list[Any], list[list[Piece]]]:
    """Heads and pieces by range, by the layout in `kernel.records.pieces`."""
    (size,) = struct.unpack_from("<I", body)
    heads = orjson.loads(body[4:4 + size])["ranges"]
    at, n = 4 + size, sum(head["pieces"] for head in heads)
    longs = struct.unpack_from(f"<{3 * n}q", body, at)
    words = struct.unpack_from(f"<{2 * n}I", body, at + 24 * n)
    end = at + BYTES_PER_HEAD * n
    pieces = []
    for i in range(n):
        end += words[n + i]
        pieces.append(Piece(longs[i], words[i], body[at + 32 * n + i] == 1, body[end - words[n + i]:end], longs[n + i],
                            longs[n + i], longs[2 * n + i]))
    assert end == len(body)
    return heads, [[pieces.pop(0) for _ in range(head["pieces"])] for head in heads]


def values(pieces: list[Piece]) -> list[bytes | None]:
    return [record[3] for one in pieces
            for record in decode_records(one.data, 0, one.count, one.first_offset, one.append_ms, one.first_id)]


def ranges_of(*ranges: tuple[int, int, int], **more: Any) -> dict[str, Any]:
    return {"ranges": [{"topic": "plant", "partition": partition, "offset": offset, "end": end, **more}
                       for partition, offset, end in ranges]}


def test_positions_of_several_topics() -> None:
    async def test(client: Client) -> None:
        client.kernel.publish("fleet/1", b"x")
        answer = await client.ask("POST", POSITIONS, json={"topics": ["plant", "fleet", "nowhere"],
                                                           "times": {"plant": {"0": NOW_MS + 4000, "1": NOW_MS * 2}}})
        document = answer.json
        plant, fleet = document["topics"]
        assert document["missing"] == ["nowhere"]
        assert document["doors"]["2"] == "http"
        assert document["routes"] == []
        assert (plant["name"], plant["partitions"], plant["log_start_offsets"]) == ("plant", 2, [0, 0])
        assert sum(plant["high_watermarks"]) == 10
        assert plant["offsets_for_times"]["0"] >= 0
        assert plant["offsets_for_times"]["1"] is None
        assert "offsets_for_times" not in fleet
        assert UUID(plant["uuid"]) != UUID(fleet["uuid"])
    run_door(test, kernel=filled())


def test_pieces_of_several_queues_in_one_answer() -> None:
    async def test(client: Client) -> None:
        ends = [client.kernel.bounds(partition_id)[1] for partition_id in (1, 2)]
        answer = await client.ask("POST", FETCH, json=ranges_of((0, 0, ends[0]), (1, 1, ends[1] - 1)))
        assert answer.headers["Content-Type"] == "application/octet-stream"
        heads, (first, second) = opened(answer.body)
        assert [head["high_watermark"] for head in heads] == ends
        assert len(values(first)) == ends[0]
        assert [piece.first_offset for piece in second] == list(range(1, ends[1] - 1))
        assert sorted([*values(first), *values(second)]) != []
        assert all(piece.append_ms == NOW_MS and not piece.whole for piece in first)
    run_door(test, kernel=filled())


def test_each_range_says_what_is_wrong_with_it() -> None:
    async def test(client: Client) -> None:
        client.kernel.trim(1, 2)
        request = ranges_of((0, 0, 9), (7, 0, 9), (0, 2, 9))
        request["ranges"].append({"topic": "nowhere", "partition": 0, "offset": 0, "end": 1})
        request["ranges"].append({"topic": "plant", "uuid": str(UUID(int=7)), "partition": 0, "offset": 0, "end": 1})
        heads, pieces = opened((await client.ask("POST", FETCH, json=request)).body)
        assert [head.get("code") for head in heads] == [
            "offset_out_of_range", "unknown_partition", None, "unknown_topic", "topic_replaced"]
        assert heads[0]["log_start_offset"] == 2
        assert pieces[2]
    run_door(test, kernel=filled())


@pytest.mark.parametrize("document", [
    [], {}, {"ranges": []}, {"ranges": [{}]}, {"ranges": [{"topic": "plant", "partition": 0, "offset": -1, "end": 1}]},
    {"ranges": [{"topic": "plant", "partition": 0, "offset": 0, "end": 1, "uuid": "x"}]},
    {"ranges": [{"topic": 1, "partition": 0, "offset": 0, "end": 1}]}, {**ranges_of((0, 0, 1)), "max_bytes": 0},
    {**ranges_of((0, 0, 1)), "max_bytes": 1 << 63},
    {**ranges_of((0, 0, 1)), "what": 1},
])
def test_what_is_no_fetch_is_refused(document: Any) -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("POST", FETCH, json=document)).code == "invalid_body"
    run_door(test, kernel=filled())


@pytest.mark.parametrize("document", [
    {}, {"topics": "plant"}, {"topics": [1]}, {"topics": ["plant"], "times": {"plant": {"x": 1}}},
    {"topics": ["plant"], "times": {"plant": {"0": "noon"}}}, {"topics": ["plant"], "times": []},
])
def test_what_is_no_question_for_positions_is_refused(document: Any) -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("POST", POSITIONS, json=document)).code == "invalid_body"
        as_json = {"Content-Type": "application/json"}
        assert (await client.ask("POST", POSITIONS, data=b"{", headers=as_json)).code == "invalid_body"
        assert (await client.ask("POST", POSITIONS, data=b"{}")).code == "unsupported_media_type"
    run_door(test, kernel=filled())


def test_a_queue_that_the_topic_has_not_has_no_time() -> None:
    async def test(client: Client) -> None:
        answer = await client.ask("POST", POSITIONS, json={"topics": ["plant"], "times": {"plant": {"9": NOW_MS}}})
        assert (answer.status, answer.code) == (404, "unknown_partition")
    run_door(test, kernel=filled())


@pytest.mark.parametrize(("allowed", "positions", "fetch"), [
    (Operation.PUBLISH, 200, "not_authorized"), (Operation.CONSUME, 200, None), (None, 403, "not_authorized")])
def test_who_may_ask(allowed: Operation | None, positions: int, fetch: str | None) -> None:
    async def test(client: Client) -> None:
        assert (await client.ask("POST", POSITIONS, json={"topics": ["plant"]})).status == positions
        heads, _ = opened((await client.ask("POST", FETCH, json=ranges_of((0, 0, 1)))).body)
        assert heads[0].get("code") == fetch
    run_door(test, kernel=filled(), admission=lambda kernel: Admission(
        kernel, lambda: NOW_MS, decision=lambda principal, operation, address: operation is allowed))
