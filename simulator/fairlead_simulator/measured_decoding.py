"""An engine model whose decode steps take as long as a pool's were measured to.

Routers measure how long a token takes after the first, averaged over the batches it decoded in and the prefills that
delayed it. A model has a cost for a step, for each sequence in it and for each token of context. So its decode costs
are stretched until a step of the pool's usual batch takes what was measured, less what prefills held it up. By Little's
law the usual batch is what arrives in a second times what an answer takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.traces.rows import TraceRow

MOST_BUSY = 0.9
"""Share of an engine's time that its prefills are taken to have at most. With more its steps are a guess."""
FURTHEST = 20.0
"""A model that would need a larger factor than this, up or down, belongs to another engine and stays unscaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualLoad:
    """The mean load that arrives at one instance."""

    requests_per_second: float
    output_tokens: float
    """Mean of a request."""
    context_tokens: float
    """Mean number of context tokens of a sequence while it decodes."""
    prefill_seconds: float
    """Mean of a request, for the uncached part of its prompt."""


def usual_load(rows: Sequence[TraceRow], hits: Sequence[int], engine: EnginePreset, requests_per_second: float) -> UsualLoad:
    """Seconds of a decode step at an instance that gets this many of these requests a second, each with the hits of an
    infinite cache.
    """
    outputs = sum(row.output_length for row in rows)
    contexts = sum(row.output_length * (row.input_length + row.output_length / 2) for row in rows)
    prefills = sum(engine.prefill.seconds(max(1, row.input_length - hit), row.input_length) for row, hit in zip(rows, hits, strict=True))
    return UsualLoad(
        requests_per_second=requests_per_second,
        output_tokens=outputs / len(rows),
        context_tokens=contexts / outputs if outputs else 0.0,
        prefill_seconds=prefills / len(rows),
    )


def with_measured_steps(engine: EnginePreset, step_seconds: float, load: UsualLoad, *, prefills: bool) -> EnginePreset | None:
    """The engine with decode costs that fit; None where no model so far off can be right. `prefills`: its instances
    compute prompts too.
    """
    busy = min(MOST_BUSY, load.requests_per_second * load.prefill_seconds) if prefills else 0.0
    batch = min(float(engine.max_sequences), max(1.0, load.requests_per_second * load.output_tokens * step_seconds))
    cost = engine.decode
    modelled = cost.fixed + cost.per_sequence * batch + cost.per_context_token * batch * load.context_tokens
    times = modelled / (step_seconds * (1 - busy))
    if not 1 / FURTHEST <= times <= FURTHEST:
        return None
    return replace(engine, decode=cost.at_speed(times))
