"""Finds a few schedules that cover the instances that a week needs. The days of the week are put into groups, each day
is divided into blocks, and each block becomes a schedule.

A block has as many instances as its quarter of an hour with the largest need. So no quarter of an hour has fewer
instances than it needs. The extra instances that a block costs are weighed against the cost of one more schedule for
people to read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fairlead.forecasts.records import PER_DAY
from fairlead.instances import Role

Wanted = NDArray[np.int64]
"""Instances by role (rows) and quarter of an hour."""

_GROUPINGS: Sequence[Sequence[tuple[int, ...]]] = (
    ((0, 1, 2, 3, 4, 5, 6),),
    ((0, 1, 2, 3, 4), (5, 6)),
    ((0, 1, 2, 3, 4), (5,), (6,)),
    ((0, 1, 2, 3), (4,), (5, 6)),
    tuple((day,) for day in range(7)),
)
"""Ways to divide the days of the week into groups; the days of a group have the same blocks. Monday = 0."""
_WORTH = 0.01
"""Least share of the week's instance hours that one more block must save."""
MOST_BLOCKS = 6
"""Maximum number of blocks per day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Instances per role on these weekdays (Monday = 0), from one quarter of the day until another (0 to 96)."""

    days: tuple[int, ...]
    begins: int
    ends: int
    replicas: Mapping[Role, int]


def week_in_blocks(wanted: Wanted, roles: Sequence[Role]) -> tuple[Block, ...]:
    """Return the blocks that cover a week from Monday on. A block is added only if it saves more instance hours than
    `_WORTH`. `wanted` has 672 columns, one per quarter of an hour.
    """
    days = wanted.reshape(len(roles), 7, PER_DAY)
    price = max(1.0, _WORTH * float(wanted.sum()))
    found = min((_grouped(days, groups, price) for groups in _GROUPINGS), key=lambda one: one[0])
    return tuple(
        Block(days=group, begins=begins, ends=ends, replicas=dict(zip(roles, map(int, numbers), strict=True)))
        for group, begins, ends, numbers in found[1]
    )


def day_in_blocks(wanted: Wanted, roles: Sequence[Role], weekday: int) -> tuple[Block, ...]:
    """Return the blocks of one day. `wanted` has 96 columns, one per quarter of an hour."""
    _, cuts = _cut(wanted, max(1.0, 7 * _WORTH * float(wanted.sum())))
    return tuple(
        Block(days=(weekday,), begins=a, ends=b, replicas=dict(zip(roles, map(int, wanted[:, a:b].max(axis=1)), strict=True)))
        for a, b in pairwise(cuts)
    )


_Found = tuple[tuple[int, ...], int, int, NDArray[np.int64]]


def _grouped(days: NDArray[np.int64], groups: Iterable[tuple[int, ...]], price: float) -> tuple[float, list[_Found]]:
    cost, found = 0.0, []
    for group in groups:
        most = days[:, list(group), :].max(axis=1)
        of_day, cuts = _cut(most, price / len(group))
        cost += of_day * len(group)
        found += [(group, begins, ends, most[:, begins:ends].max(axis=1)) for begins, ends in pairwise(cuts)]
    return cost, found


def _cut(wanted: Wanted, price: float) -> tuple[float, list[int]]:
    """Return the cheapest way to cut a day into blocks: the cuts, after their cost. The cost is the number of instance
    quarters plus a price for each block.
    """
    costs = _costs(wanted)
    best = np.full((MOST_BLOCKS + 1, PER_DAY + 1), np.inf)
    before = np.zeros((MOST_BLOCKS + 1, PER_DAY + 1), dtype=int)
    best[0, 0] = 0.0
    for number in range(1, MOST_BLOCKS + 1):
        through = best[number - 1][:, None] + costs
        before[number], best[number] = through.argmin(axis=0), through.min(axis=0) + price
    number = int(best[:, PER_DAY].argmin())
    cost, cuts = float(best[number, PER_DAY]), [PER_DAY]
    while number:
        cuts.append(int(before[number, cuts[-1]]))
        number -= 1
    return cost, cuts[::-1]


def _costs(wanted: Wanted) -> NDArray[np.float64]:
    """Return a matrix of costs in instance quarters. The entry at a row and a column is the cost of the block from the
    row's quarter to the column's quarter; it is infinite for an empty block.
    """
    found = np.full((PER_DAY + 1, PER_DAY + 1), np.inf)
    for begins in range(PER_DAY):
        most = np.maximum.accumulate(wanted[:, begins:], axis=1).sum(axis=0)
        found[begins, begins + 1 :] = most * np.arange(1, PER_DAY - begins + 1)
    return found
