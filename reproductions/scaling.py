"""Pools that scale themselves: out of an overload, with shifting work, and at rest when nothing changes."""

from reproductions import scaling_changes, scaling_elasticity, scaling_ratio
from reproductions.sections import Context, Section

INTRODUCTION = """Not a paper's figures but Fairlead's own promises: `spec.scaling` and `spec.ratio`, decided by `fairlead.scaling` as in the operator
and asked every 5 s, on simulated pools whose instances start late and drain before they go ([simulator.md](simulator.md))."""


def write(context: Context) -> str:
    """Run all parts and return the section's text."""
    parts = (
        scaling_ratio.describe,
        scaling_elasticity.describe,
        scaling_changes.describe_victims,
        scaling_ratio.describe_rest,
    )
    return "\n\n".join((INTRODUCTION, *(part(context) for part in parts)))


SECTION = Section(name="scaling", title="Scaling: replicas by the SLO, and the ratio of prefill to decode", write=write)
