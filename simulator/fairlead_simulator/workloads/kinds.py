"""Generators by name, for the command line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads.agents import AgentShape, generate_agents
from fairlead_simulator.workloads.conversations import ConversationShape, generate_conversations
from fairlead_simulator.workloads.phases import PhaseShape, generate_phases
from fairlead_simulator.workloads.prefix_groups import PrefixGroupShape, generate_prefix_groups
from fairlead_simulator.workloads.tool_agents import ToolAgentShape, generate_tool_agents


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A generator: `rows(rate, median_input, seed)`.

    None for either of the first two means the default of the shape.
    """

    about: str
    rows: Callable[[float | None, float | None, int], Iterator[TraceRow]]


def _conversations(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
    default = ConversationShape()
    shape = ConversationShape(
        requests_per_second=rate or default.requests_per_second, opening_median=median_input or default.opening_median
    )
    return generate_conversations(shape, seed)


def _tool_agents(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
    default = ToolAgentShape()
    shape = ToolAgentShape(requests_per_second=rate or default.requests_per_second, opening_median=median_input or default.opening_median)
    return generate_tool_agents(shape, seed)


def _agents(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
    default = AgentShape()
    shape = AgentShape(requests_per_second=rate or default.requests_per_second, opening_median=median_input or default.opening_median)
    return generate_agents(shape, seed)


def _prefix_groups(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
    default = PrefixGroupShape()
    shape = PrefixGroupShape(
        prefix_tokens=default.prefix_tokens if median_input is None else max(1, round(median_input)),
        lowest_rate=rate or default.lowest_rate,
        highest_rate=rate or default.highest_rate,
    )
    return generate_prefix_groups(shape, seed)


def _phases(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
    default = PhaseShape()
    faster = 1.0 if rate is None else rate / default.requests_per_second
    longer = 1.0 if median_input is None else median_input / default.phases[0].input_median
    phases = (
        replace(phase, requests_per_second=phase.requests_per_second * faster, input_median=phase.input_median * longer)
        for phase in default.phases
    )
    return generate_phases(PhaseShape(phases=tuple(phases)), seed)


KINDS: dict[str, Kind] = {
    "conversation": Kind(about="chat sessions below one system prompt", rows=_conversations),
    "tool-agent": Kind(about="two tools with long instructions, and chats", rows=_tool_agents),
    "agentic": Kind(about="agents with few giant sessions, closed-loop capable", rows=_agents),
    "prefix-groups": Kind(about="tenants with a long prompt each, at a rising rate", rows=_prefix_groups),
    "phases": Kind(about="20 minutes of long prompts, 20 minutes of long answers, in turn", rows=_phases),
}
