"""Number of requests that met the pool's SLO, by second and priority class."""

from dataclasses import dataclass

from fairlead.tables import DEFAULT_CLASS, PoolKey

MAX_CELLS = 1000
"""Maximum number of cells of one sample. A sample with more cells is split into several samples whose counts add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloSample:
    """The requests of one pool and priority class that ended in one second at this router.

    A request is judged when it is finished and its first token was seen, as in `LoadSample`. It is judged by the
    targets of the routing table at that moment; `slo_version` is the version of these targets, None if the table does
    not contain it. A request that its client cancelled is judged by the tokens that the client had received, and counts
    as late if the TTFT target had passed without a first token. Refused requests and requests that failed permanently
    are counted separately. `cells` are the latency cells of the judged requests (`fairlead.latency_cells`), ascending;
    `counts` has the number of requests in each cell.
    """

    pool: PoolKey
    second: int
    priority_class: str = DEFAULT_CLASS
    slo_version: int | None = None
    judged: int = 0
    within_slo: int = 0
    ttft_within_slo: int = 0
    tpot_within_slo: int = 0
    tpot_total: int = 0
    refused: int = 0
    failed: int = 0
    cells: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
