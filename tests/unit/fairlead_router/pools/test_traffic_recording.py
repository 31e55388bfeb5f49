"""Recorded traffic has lengths and shared beginnings of prompts, and nothing from which a text could be read."""

from dataclasses import dataclass, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.traffic import UNSTORED, RecordedRequest
from fairlead.reports.usage import PoolUsage
from fairlead.routing.contracts.decisions import DecisionReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.session_trees import Lineage
from fairlead_router.metrics.endings import Ending
from fairlead_router.pools.tickets import Ticket
from fairlead_router.pools.traffic_recording import KNOWN_BLOCKS, MOST_ENDED, BlockIds, Served, TrafficRecording, recorded_requests
from fairlead_router.protocols.answers import Usage
from fairlead_testing.builders.routing_tables import routing_table


@dataclass(frozen=True)
class Over:
    request: RoutingRequest
    usage: Usage | None = None
    served: Served | None = None
    verdict: Dispatch | Refusal | None = None
    ending: Ending | None = None
    ended_at: float = 65.0


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


def test_neither_session_nor_router_hash_can_be_read_from_what_is_stored_of_a_record() -> None:
    (record,) = recorded_requests(
        [Over(request("a", (11, 12), session="jane"), Usage(output_tokens=9))], routing_table(["127.0.0.1:1"]), 1.0
    )
    assert (record.at, record.prompt_tokens, record.output_tokens, record.sample_rate) == (5.0, 1031, 9, 1.0)
    assert record.session is not None
    assert not {11, 12} & set(record.blocks)
    stored = {one.name: getattr(record, one.name) for one in fields(RecordedRequest) if UNSTORED not in one.metadata}
    assert "jane" not in str(stored)


def test_a_record_is_a_turn_of_its_session_and_says_how_it_ended() -> None:
    said = Lineage(parent="main", task="t", tool="Bash", window=2)
    asked = replace(request("a", (1,), session="jane"), lineage=said, owner="key-1", priority_class="batch")
    (record,) = recorded_requests([Over(asked, ending=Ending.LEFT_WAITING, ended_at=7.5)], routing_table(["127.0.0.1:1"]), 1.0)
    assert (record.name, record.parent, record.task, record.tool, record.window_number) == ("jane", "main", "t", "Bash", 2)
    assert record.priority_class == "batch"
    assert (record.tenant, record.ended_seconds, record.outcome, record.rejection) == ("key-1", 2.5, RequestOutcome.CANCELLED, None)
    (silent,) = recorded_requests([Over(request("b", (1,)))], routing_table(["127.0.0.1:1"]), 1.0)
    assert (silent.name, silent.parent, silent.tool, silent.ended_seconds, silent.outcome) == (None, None, None, None, None)


@pytest.mark.parametrize("ending", Ending)
def test_every_ending_has_the_outcome_that_its_decision_has(ending: Ending) -> None:
    (record,) = recorded_requests([Over(request("a", (1,)), ending=ending, ended_at=6.0)], routing_table(["127.0.0.1:1"]), 1.0)
    assert record.outcome is not None
    assert (record.outcome is RequestOutcome.SERVED) == (ending is Ending.SERVED)


def test_a_record_says_how_one_engine_served_the_request() -> None:
    one = Over(request("a", (1, 2)), Usage(9, 512, 1040), Served("chat-both-0#1", 256, 6.5, 0.25, 1.25))
    (record,) = recorded_requests([one], routing_table(["127.0.0.1:1"]), 1.0)
    assert (record.instance, record.rank, record.sent_seconds) == ("chat-both-0", 1, 1.5)
    assert (record.ttft_seconds, record.answer_seconds) == (0.25, 1.25)
    assert (record.engine_prompt_tokens, record.cached_tokens) == (1040, 512)
    (believed,) = recorded_requests([replace(one, usage=Usage(9))], routing_table(["127.0.0.1:1"]), 1.0)
    assert believed.cached_tokens == 256
    (unserved,) = recorded_requests([Over(request("a", (1, 2)))], routing_table(["127.0.0.1:1"]), 1.0)
    assert (unserved.instance, unserved.ttft_seconds) == (None, None)


def test_an_id_stands_for_512_tokens_whatever_the_routing_block_is() -> None:
    table = routing_table(["127.0.0.1:1"])
    small = replace(table, engine=replace(table.engine, block_tokens=128))
    (fine,) = recorded_requests([Over(request("a", tuple(range(1, 9)), tokens=1024))], small, 1.0)
    assert len(fine.blocks) == 2
    large = replace(table, engine=replace(table.engine, block_tokens=1024))
    (coarse,) = recorded_requests([Over(request("a", (1,), tokens=1500))], large, 1.0)
    assert len(set(coarse.blocks)) == 2, "both halves of the only full block"


def test_where_a_request_was_sent_is_recorded_also_if_nobody_saw_its_first_token() -> None:
    ticket = Ticket(request("a", (1, 2)), None)
    assert ticket.served is None
    ticket.verdict = Dispatch(
        request=ticket.request,
        instance="i0#1",
        address="",
        fallbacks=(),
        decision_id="d",
        reason=DecisionReason.LEAST_LOADED,
        hit_tokens=300,
        miss_tokens=0,
    )
    ticket.dispatched_at = ticket.request.arrived_at + 2.0
    ticket.ending = Ending.BROKEN_OFF
    (record,) = recorded_requests([ticket], routing_table(["127.0.0.1:1"]), 1.0)
    assert (record.instance, record.rank, record.sent_seconds, record.cached_tokens) == ("i0", 1, 2.0, 300)
    assert (record.ttft_seconds, record.answer_seconds) == (None, None)


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
    taken, used, dropped = recording.take(routing_table(["127.0.0.1:1"]))
    assert (len(taken), used, dropped) == (MOST_ENDED if share else 0, (), 3)
    assert recording.take(routing_table(["127.0.0.1:1"])) == ((), (), 0)


def test_use_is_added_up_by_minute_key_class_and_session_whatever_share_is_recorded() -> None:
    recording = TrafficRecording(0.0)
    asked = replace(request("a", (1,), session="jane", tokens=100), owner="key-1", priority_class="gold")
    served = Served("chat-both-0", 20, 1.0)
    for one in (
        Over(asked, Usage(7, 30, 90), served),
        Over(asked, Usage(3), served),  # the engine reports no cached tokens: those that the router believed in
        Over(asked, None, served),  # it broke off before its engine reported anything
        Over(asked, Usage(1, 900, 90), served),  # no more than the prompt can be cached
        Over(asked, Usage(1)),  # it reached no engine
        Over(request("b", (2,), tokens=5), Usage(2), Served("chat-both-1", 0, 1.0), ended_at=120.0),
    ):
        recording.ended(one)
    table = routing_table(["127.0.0.1:1"])
    _, used, _ = recording.take(table)
    of_jane = PoolUsage(
        pool=table.pool, minute=60, key="key-1", priority_class="gold", session="jane",
        requests=4, prefill_tokens=60 + 80, hit_tokens=30 + 20 + 90, output_tokens=11,
    )  # fmt: skip
    assert used == (of_jane, PoolUsage(pool=table.pool, minute=120, requests=1, prefill_tokens=5, output_tokens=2))


def chained(texts: list[int]) -> tuple[int, ...]:
    """Return hashes of blocks of these texts. Equal hashes mean that all text before was equal too."""
    return tuple(hash(tuple(texts[: place + 1])) for place in range(len(texts)))


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.sampled_from([None, "a", "b"]), st.integers(0, 5000))),
    st.sampled_from([100, 128, 512, 513, 1024]),
)
def test_what_is_remembered_of_earlier_prompts_changes_no_id(prompts: list[tuple[list[int], str | None, int]], block_tokens: int) -> None:
    remembering = BlockIds()
    for texts, session, tokens in prompts:
        asked = request("r", chained(texts), session, tokens)
        assert remembering.of(b"uid", asked, block_tokens) == BlockIds().of(b"uid", asked, block_tokens)


def test_another_pool_or_size_of_blocks_gets_other_ids_from_the_same_memory() -> None:
    remembering, asked = BlockIds(), request("r", (1, 2, 3, 4))
    found = [remembering.of(salt, asked, tokens) for salt, tokens in ((b"a", 512), (b"b", 512), (b"b", 1024), (b"a", 512))]
    assert found[0] == found[3]
    assert len({*found}) == 3


def test_what_is_remembered_is_bounded() -> None:
    remembering = BlockIds()
    for number in range(20):
        remembering.of(b"uid", request("r", tuple(range(number, number + KNOWN_BLOCKS // 8))), 512)
    assert sum(len(blocks) for blocks, _ in remembering._prompts.values()) == remembering._kept <= KNOWN_BLOCKS
