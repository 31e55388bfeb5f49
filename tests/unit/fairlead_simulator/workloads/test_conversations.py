from collections import Counter
from itertools import islice, pairwise

import pytest

from fairlead.routing.choosing.prefix_hotness import CODE, PAPER, HotnessSettings, PrefixHotness
from fairlead_simulator.traces.descriptions import describe
from fairlead_simulator.workloads import SYSTEM_BLOCK, ConversationShape, generate_conversations


def test_a_seed_gives_one_workload() -> None:
    shape = ConversationShape()
    first = list(islice(generate_conversations(shape, 3), 200))
    assert first == list(islice(generate_conversations(shape, 3), 200))
    assert first != list(islice(generate_conversations(shape, 4), 200))


def test_rows_are_well_formed_and_in_order() -> None:
    rows = list(islice(generate_conversations(ConversationShape(), 1), 3000))
    assert all(len(row.hash_ids) == -(-row.input_length // 512) for row in rows)
    assert all(row.hash_ids[0] == SYSTEM_BLOCK and row.output_length >= 1 for row in rows)
    assert all(earlier.timestamp_ms <= later.timestamp_ms for earlier, later in pairwise(rows))
    assert max(row.input_length for row in rows) <= 126_000


def test_the_default_shape_resembles_the_conversation_trace() -> None:
    found = describe(islice(generate_conversations(ConversationShape(), 0), 8000))
    assert found.requests_per_second == pytest.approx(3.4, rel=0.05)
    assert found.input_tokens.mean == pytest.approx(12_035, rel=0.1)
    assert found.output_tokens.mean == pytest.approx(343, rel=0.1)
    assert found.token_hit_rate == pytest.approx(0.374, abs=0.04)


def test_a_turn_repeats_the_whole_blocks_of_the_one_before() -> None:
    latest: dict[int, tuple[int, ...]] = {}
    continued = 0
    for row in islice(generate_conversations(ConversationShape(), 2), 2000):
        full = row.hash_ids[: row.input_length // 512]
        key = row.hash_ids[1]
        if key in latest:
            continued += 1
            assert row.hash_ids[: len(latest[key])] == latest[key]
        latest[key] = full
    assert continued > 400


@pytest.mark.parametrize("hotness", [PAPER, CODE], ids=["paper", "code"])
def test_keys_of_conversations_end_at_the_first_block_that_is_not_the_system_prompt(hotness: HotnessSettings) -> None:
    """On Mooncake's trace, the result under either rule is two blocks, except for the twenty requests before there are
    samples enough.
    """
    tree, depths = PrefixHotness(hotness), Counter[int]()
    for row in islice(generate_conversations(ConversationShape(), 1), 4000):
        depths[tree.observe(row.hash_ids, 0, 8)[0]] += 1
    assert depths == {1: 20, 2: 3980}
