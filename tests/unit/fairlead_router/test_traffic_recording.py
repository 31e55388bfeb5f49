"""What is recorded of traffic: lengths, and which prompts begin alike; nothing that tells a text."""

from dataclasses import dataclass, replace

import pytest

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead_router.answers import Usage
from fairlead_router.traffic_recording import MOST_ENDED, TrafficRecording, recorded_requests
from fairlead_testing.builders.routing_tables import routing_table


@dataclass(frozen=True)
class Over:
    request: RoutingRequest
    usage: Usage | None = None


def request(name: str, blocks: tuple[int, ...], session: str | None = None, tokens: int | None = None) -> RoutingRequest:
    length = 512 * len(blocks) + 7 if tokens is None else tokens
    return RoutingRequest(id=name, arrived_at=5.0, prompt_tokens=length, blocks=blocks, first_bytes_hash=blocks[0], session=session)


def test_equal_blocks_have_equal_ids_in_a_pool_and_others_in_another() -> None:
    table = routing_table(["127.0.0.1:1"])
    first, second = recorded_requests([Over(request("a", (1, 2))), Over(request("b", (1, 2, 3)))], table, 1.0)
    assert second.blocks[:2] == first.blocks
    assert len(set(second.blocks)) == 3
    (elsewhere,) = recorded_requests([Over(request("a", (1, 2)))], replace(table, uid="another"), 1.0)
    assert not set(elsewhere.blocks) & set(first.blocks)
    assert all(0 <= block < 2**53 for block in second.blocks)


def test_neither_session_nor_router_hash_can_be_read_from_a_record() -> None:
    (record,) = recorded_requests(
        [Over(request("a", (11, 12), session="jane"), Usage(output_tokens=9))], routing_table(["127.0.0.1:1"]), 1.0
    )
    assert (record.at, record.prompt_tokens, record.output_tokens, record.sample_rate) == (5.0, 1031, 9, 1.0)
    assert record.session is not None
    assert not {11, 12} & set(record.blocks)
    assert "jane" not in str(record)


def test_an_id_stands_for_512_tokens_whatever_the_routing_block_is() -> None:
    table = routing_table(["127.0.0.1:1"])
    small = replace(table, engine=replace(table.engine, block_tokens=128))
    (fine,) = recorded_requests([Over(request("a", tuple(range(1, 9)), tokens=1024))], small, 1.0)
    assert len(fine.blocks) == 2
    large = replace(table, engine=replace(table.engine, block_tokens=1024))
    (coarse,) = recorded_requests([Over(request("a", (1,), tokens=1500))], large, 1.0)
    assert len(set(coarse.blocks)) == 2, "both halves of the only full block"


def test_a_session_is_recorded_whole_or_not_at_all() -> None:
    sessions = [f"s{number}" for number in range(400)]
    turns = [Over(request(f"{name}-{turn}", (turn + 1,), session=name)) for name in sessions for turn in range(3)]
    kept = list(recorded_requests(turns, routing_table(["127.0.0.1:1"]), 0.25))
    counts = {record.session: sum(one.session == record.session for one in kept) for record in kept}
    assert set(counts.values()) == {3}
    assert 60 < len(counts) < 140
    assert {record.sample_rate for record in kept} == {0.25}


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_only_so_many_are_kept_and_none_where_nothing_is_recorded(share: float) -> None:
    recording = TrafficRecording(share)
    for number in range(MOST_ENDED + 3):
        recording.ended(Over(request(str(number), (1,))))
    taken, dropped = recording.take(routing_table(["127.0.0.1:1"]))
    assert (len(taken), dropped) == ((MOST_ENDED, 3) if share else (0, 0))
    assert recording.take(routing_table(["127.0.0.1:1"])) == ((), 0)
