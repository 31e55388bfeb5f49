"""Generated workloads, compared with the published figures after which they are modelled."""

from collections import Counter
from itertools import islice, pairwise

import pytest

from fairlead.routing.choosing.prefix_hotness import CODE, PrefixHotness
from fairlead_simulator.traces.descriptions import IdealCache, describe
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads.agents import AgentShape, generate_agents
from fairlead_simulator.workloads.kinds import KINDS
from fairlead_simulator.workloads.prefix_groups import PrefixGroupShape, generate_prefix_groups
from fairlead_simulator.workloads.tool_agents import ToolAgentShape, generate_tool_agents

FULL_LENGTH = 23_608


@pytest.fixture(scope="module")
def tool_agents() -> list[TraceRow]:
    return list(islice(generate_tool_agents(ToolAgentShape(), 0), FULL_LENGTH))


@pytest.fixture(scope="module")
def agents() -> list[TraceRow]:
    return list(islice(generate_agents(AgentShape(), 0), 20_000))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_well_formed_in_order_and_reproducible(kind: str) -> None:
    rows = list(islice(KINDS[kind].rows(None, None, 5), 1500))
    assert rows == list(islice(KINDS[kind].rows(None, None, 5), 1500))
    assert rows != list(islice(KINDS[kind].rows(None, None, 6), 1500))
    assert all(len(row.hash_ids) == -(-row.input_length // 512) and row.input_length > 0 and row.output_length > 0 for row in rows)
    assert all(earlier.timestamp_ms <= later.timestamp_ms for earlier, later in pairwise(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_known_blocks_are_always_a_leading_run(kind: str) -> None:
    known: set[int] = set()
    for row in islice(KINDS[kind].rows(None, None, 7), 3000):
        flags = [block in known for block in row.hash_ids]
        assert flags == sorted(flags, reverse=True)
        known.update(row.hash_ids)


@pytest.mark.parametrize("kind", ["conversation", "tool-agent"])
def test_a_rate_asked_for_is_kept(kind: str) -> None:
    found = describe(islice(KINDS[kind].rows(12.0, None, 1), 8000))
    assert found.requests_per_second == pytest.approx(12.0, rel=0.05)


def test_tool_agents_meet_the_published_means_and_reuse(tool_agents: list[TraceRow]) -> None:
    found = describe(tool_agents)
    assert found.input_tokens.mean == pytest.approx(8596, rel=0.03)
    assert found.output_tokens.mean == pytest.approx(182, rel=0.05)
    assert found.block_hit_rate == pytest.approx(0.59, abs=0.02)
    assert found.requests_per_second == pytest.approx(6.56, rel=0.03)


def test_three_quarters_of_tool_agent_requests_share_half_their_prompt(tool_agents: list[TraceRow]) -> None:
    cache = IdealCache()
    sharers = sum(cache.add(row) >= row.input_length / 2 for row in tool_agents)
    assert sharers / len(tool_agents) == pytest.approx(0.76, abs=0.03)


def test_tool_agent_keys_of_the_dualmap_code_preset_have_the_published_depths(tool_agents: list[TraceRow]) -> None:
    hotness, depths = PrefixHotness(CODE), Counter[int]()
    for row in tool_agents:
        depths[hotness.observe(row.hash_ids, 0, 8)[0]] += 1
    shares = {depth: depths[depth] / len(tool_agents) for depth in (2, 6, 13)}
    assert shares[2] == pytest.approx(0.45, abs=0.02)
    assert shares[6] == pytest.approx(0.15, abs=0.02)
    assert shares[13] == pytest.approx(0.38, abs=0.02)


def test_agents_have_the_reported_lengths_and_reuse(agents: list[TraceRow]) -> None:
    found = describe(agents)
    assert found.requests_per_second == pytest.approx(2.0, rel=0.2)
    assert found.input_tokens.mean == pytest.approx(33_600, rel=0.1)
    assert found.input_tokens.mean / found.output_tokens.mean == pytest.approx(75, rel=0.1)
    assert found.token_hit_rate == pytest.approx(0.803, abs=0.03)


def test_few_agent_sessions_hold_most_input(agents: list[TraceRow]) -> None:
    by_session = Counter[str]()
    for row in agents:
        by_session[row.session or ""] += row.input_length
    held = sorted(by_session.values(), reverse=True)
    for share, expected in ((0.01, 0.465), (0.05, 0.665), (0.10, 0.746), (0.25, 0.875), (0.50, 0.96)):
        assert sum(held[: round(share * len(held))]) / sum(held) == pytest.approx(expected, abs=0.06)


def test_agent_turns_after_the_first_tell_the_tool_time(agents: list[TraceRow]) -> None:
    seen: set[str | None] = set()
    for row in agents:
        assert (row.pause_ms is not None) == (row.session in seen)
        seen.add(row.session)


def test_prefix_groups_warm_up_then_climb() -> None:
    shape = PrefixGroupShape()
    rows = list(islice(generate_prefix_groups(shape, 0), 1150))
    assert len({row.hash_ids[0] for row in rows[:230]}) == 230
    assert len({row.hash_ids for row in rows}) == 1150
    assert all(row.input_length == 9000 and row.output_length == 1000 for row in rows)
    early = rows[330].timestamp_ms - rows[230].timestamp_ms
    late = rows[1149].timestamp_ms - rows[1049].timestamp_ms
    assert early > 5 * late
    prefix_blocks = 8000 // 512
    assert Counter(row.hash_ids[prefix_blocks - 1] for row in rows).most_common(1)[0][1] == 5
