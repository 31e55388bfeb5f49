"""What requests used of a pool's instances, by key, class and session: what their cost is divided by."""

from dataclasses import dataclass

from fairlead.tables import DEFAULT_CLASS, PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    """Requests of a pool that ended at this router in one minute, counted since the last record of the same minute:
    records add up.

    `minute` is when it began, in Unix seconds. `key` is the id of their key, empty for requests without one, and
    `session` their session, empty for requests without one. `prefill_tokens` are the prompts' tokens that engines
    computed, `hit_tokens` those that were cached, as engines report them, or else as the router believed.
    """

    pool: PoolKey
    minute: int
    key: str = ""
    priority_class: str = DEFAULT_CLASS
    session: str = ""
    requests: int = 0
    prefill_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0
