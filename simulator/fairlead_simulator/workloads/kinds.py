"""The generators of workloads by name, for the command line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.workloads.agents import CODING, CODING_SHORT, AgentShape, generate_agents
from fairlead_simulator.workloads.conversations import LONG_DOCUMENTS, ConversationShape, generate_conversations
from fairlead_simulator.workloads.phases import CHAT, PhaseShape, generate_phases
from fairlead_simulator.workloads.prefix_groups import PrefixGroupShape, generate_prefix_groups
from fairlead_simulator.workloads.tool_agents import ToolAgentShape, generate_tool_agents

Rows = Callable[[float | None, float | None, int], Iterator[TraceRow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of workload. `rows(rate, median_input, seed)` generates its rows.

    If `rate` or `median_input` is None, the default of the kind's shape is used.
    """

    about: str
    rows: Rows


def _conversations(default: ConversationShape) -> Rows:
    def rows(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
        shape = replace(
            default, requests_per_second=rate or default.requests_per_second, opening_median=median_input or default.opening_median
        )
        return generate_conversations(shape, seed)

    return rows


def _tool_agents(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
    default = ToolAgentShape()
    shape = ToolAgentShape(requests_per_second=rate or default.requests_per_second, opening_median=median_input or default.opening_median)
    return generate_tool_agents(shape, seed)


def _agents(default: AgentShape) -> Rows:
    def rows(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
        shape = replace(
            default, requests_per_second=rate or default.requests_per_second, opening_median=median_input or default.opening_median
        )
        return generate_agents(shape, seed)

    return rows


def _prefix_groups(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
    default = PrefixGroupShape()
    shape = PrefixGroupShape(
        prefix_tokens=default.prefix_tokens if median_input is None else max(1, round(median_input)),
        lowest_rate=rate or default.lowest_rate,
        highest_rate=rate or default.highest_rate,
    )
    return generate_prefix_groups(shape, seed)


def _phases(default: PhaseShape) -> Rows:
    def rows(rate: float | None, median_input: float | None, seed: int) -> Iterator[TraceRow]:
        faster = 1.0 if rate is None else rate / default.requests_per_second
        longer = 1.0 if median_input is None else median_input / default.phases[0].input_median
        phases = (
            replace(phase, requests_per_second=phase.requests_per_second * faster, input_median=phase.input_median * longer)
            for phase in default.phases
        )
        return generate_phases(PhaseShape(phases=tuple(phases)), seed)

    return rows


KINDS: dict[str, Kind] = {
    "conversation": Kind(about="chat sessions below one system prompt", rows=_conversations(ConversationShape())),
    "tool-agent": Kind(about="two tools with long instructions, and chats", rows=_tool_agents),
    "agentic": Kind(about="agents with few giant sessions, closed-loop capable", rows=_agents(AgentShape())),
    "prefix-groups": Kind(about="tenants with a long prompt each, at a rising rate", rows=_prefix_groups),
    "phases": Kind(about="20 minutes of long prompts, 20 minutes of long answers, in turn", rows=_phases(PhaseShape())),
    "chat": Kind(about="short prompts that share nothing, as in Azure's trace", rows=_phases(PhaseShape(phases=(CHAT,)))),
    "coding-agents": Kind(about="dozens of turns of coding agents, up to 100,000 tokens", rows=_agents(CODING)),
    "coding-agents-short": Kind(about="a dozen turns of coding agents, up to 32,000 tokens", rows=_agents(CODING_SHORT)),
    "long-documents": Kind(about="questions about long prompts, with short answers", rows=_conversations(LONG_DOCUMENTS)),
}
