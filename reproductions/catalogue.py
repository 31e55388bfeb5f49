"""The sections of docs/benchmarks.md in order. A new section is a module with a `SECTION` that is listed here."""

from collections.abc import Sequence

from reproductions import (
    apart,
    beliefs,
    caches,
    copies,
    default_policy,
    default_policy_grid,
    dualmap,
    ear,
    fetching,
    heimdall,
    lodestar,
    mooncake,
    scaling,
    sharing,
    staleness,
    unseen_traffic,
)
from reproductions.sections import Section

SECTIONS: Sequence[Section] = (
    default_policy.SECTION,
    default_policy_grid.SECTION,
    unseen_traffic.SECTION,
    dualmap.SECTION,
    mooncake.SECTION,
    ear.SECTION,
    heimdall.SECTION,
    caches.SECTION,
    lodestar.SECTION,
    staleness.SECTION,
    apart.SECTION,
    scaling.SECTION,
    sharing.SECTION,
    beliefs.SECTION,
    fetching.SECTION,
    copies.SECTION,
)
