"""EAR (elastic affinity routing for agent sessions): its trace's shape, its policy, and its law that couples load and
latency in a closed loop.
"""

from reproductions.ear_coupling import write_coupling
from reproductions.ear_policies import write_policies
from reproductions.ear_thresholds import write_thresholds
from reproductions.ear_trace import write_trace
from reproductions.sections import Context, Section


def write(context: Context) -> str:
    """Run all parts and return the section's text."""
    return f"""The draft claims that on agent traces, where few sessions hold most of the input and nearly all reuse is within a session, sticky routing
makes hotspots, load balancing loses the cache, and affinity with bounded migration of sessions keeps the hit rate without the hotspots. Its figures for
"EAR" (P90 of TTFT 7.35 s, hits 79.4 %) are not of that policy: they come from another prototype, affinity with a scored fallback and no migration;
migration has no end-to-end result there. There is thus nothing to compare seconds with, and what follows tests the claims.

### The trace

{write_trace(context)}

### Policies

{write_policies(context)}

### Thresholds

{write_thresholds(context)}

### Coupling of load and latency

{write_coupling(context)}"""


SECTION = Section(name="ear", title="EAR: affinity with migration on agent sessions", write=write)
