"""The usage of a pool's instances by requests, by key, class and session. Costs are divided in proportion to these
amounts.
"""

from dataclasses import dataclass

from fairlead.tables import DEFAULT_CLASS, PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    """Requests of a pool that ended at this router in one minute, counted since the previous record of the same minute.
    The records of a minute add up.

    `minute` is the minute's beginning, in Unix seconds. `key` is the id of the requests' key and `session` their
    session; each is empty for requests without one. `prefill_tokens` are the prompt tokens that engines computed, and
    `hit_tokens` the prompt tokens found in caches; both are the engines' figures or, without them, the router's
    estimates.
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
