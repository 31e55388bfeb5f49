"""The demand on a pool, second by second."""

from dataclasses import dataclass

from fairlead.tables import PoolKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalSample:
    """The requests for a pool that arrived at this router in one second, with any outcome.

    Refused requests also count as demand. A request that has to wait because no instance accepts requests is counted in
    the second of its arrival. A second without a request has no sample. `squares` is the sum over requests of the
    square of their prompt tokens; None from an older router.
    """

    pool: PoolKey
    second: int
    requests: int
    prompt_tokens: int
    prompt_tokens_squared: int | None = None
