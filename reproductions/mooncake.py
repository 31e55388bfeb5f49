"""Mooncake: which requests to refuse and at what stage, and the benefit of replicating hot prefixes."""

from reproductions import mooncake_caches, mooncake_oscillation, mooncake_rejection, mooncake_replication
from reproductions.mooncake_runs import requests_of, run_trials
from reproductions.sections import Context, Section

REQUESTS = 12_000
REPLICATION_REQUESTS = 8_000


def write(context: Context) -> str:
    """Run all parts and return the section's text."""
    loaded = requests_of(context, REQUESTS)
    outcomes = run_trials(context, loaded, mooncake_rejection.trials(context))
    shorter = requests_of(context, REPLICATION_REQUESTS)
    replicated = run_trials(context, shorter, mooncake_replication.trials(context))
    parts = (
        "Mooncake's Conductor (the policy `mooncake`, Algorithm 1) and its early rejection (`earlyRejection`), on pools of prefill and decode instances.",
        mooncake_rejection.describe(loaded, outcomes),
        mooncake_oscillation.describe(context, outcomes),
        mooncake_replication.describe(context, replicated),
        mooncake_caches.describe(context, loaded),
    )
    return "\n\n".join(parts)


SECTION = Section(name="mooncake", title="Mooncake: what to reject, and when", write=write)
