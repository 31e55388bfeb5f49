"""The waiting work of each tenant at each instance, kept as matrices with a row per instance and an entry per tenant
that waits there.

A tenant's *served work* is its work that was already sent; the tenant with the least served work is served next. The
matrices give, for all instances at once, the waiting work that would be sent after its tenant's served work has reached
a given value, the *point*. A change writes one entry. A tenant's waiting work is assumed to be spread evenly between
its present served work and its served work after all its waiting work. With 64 instances, 64 requests each and 100
tenants, a query takes about 40 microseconds.
"""

from dataclasses import dataclass

import numpy as np

from fairlead.routing.contracts.vectors import FloatVector
from fairlead.routing.queues.accounting import TrackedRequest

FIRST_ROWS = 8
FIRST_ENTRIES = 4

ROUNDING = 1e-3
"""Tolerance in microseconds or requests: a sum of shares that is this close to a whole number is treated as that
number.
"""

_ABLE_END, _ABLE_WORK, _ABLE_RATE, _END, _WORK, _RATE, _REQUEST_RATE = range(7)
"""Indexes of the matrices. Each matrix has one value per tenant and instance:

- `_END`: the tenant's served work after all its waiting work
- `_WORK`: its waiting work
- `_RATE`: predicted prefill time per unit of waiting work
- `_REQUEST_RATE`: number of requests per unit of waiting work
- `_ABLE_END`, `_ABLE_WORK`, `_ABLE_RATE`: the same values for the work that can still be in time
"""


@dataclass(slots=True)
class Waiting:
    """A tenant's waiting requests: their number, the predicted time of their prefills, and their work."""

    requests: int = 0
    microseconds: int = 0
    work: int = 0

    def count(self, tracked: TrackedRequest, times: int) -> None:
        """Add a request to the figures (`times` = 1), or remove it (-1)."""
        self.requests += times
        self.microseconds += times * tracked.prefill_microseconds
        self.work += times * tracked.work_microseconds


class Tenant:
    """A tenant in a queue: its served work and its waiting work. `able` is the waiting work that can still meet its
    TTFT target, `late` the waiting work that cannot. `entry` is the tenant's index in the row of its instance.
    """

    __slots__ = ("able", "able_end", "end", "entry", "late", "served")

    def __init__(self, served: int) -> None:
        self.served = self.able_end = self.end = served
        """Three values of the tenant's served work: `served` is the present value, `able_end` the value after all
        waiting work that can be in time, and `end` the value after all waiting work.
        """
        self.able = Waiting()
        self.late = Waiting()
        self.entry = 0

    @property
    def waits(self) -> bool:
        """Whether the tenant has waiting requests."""
        return self.able.requests + self.late.requests > 0

    def figures(self) -> tuple[float, ...]:
        """Return the tenant's values for the matrices, from its present state."""
        able, late = self.able, self.late
        work = able.work + late.work
        self.able_end, self.end = self.served + able.work, self.served + work
        return (
            self.able_end,
            able.work,
            able.microseconds / able.work if able.work else 0.0,
            self.end,
            work,
            (able.microseconds + late.microseconds) / work if work else 0.0,
            (able.requests + late.requests) / work if work else 0.0,
        )


class Backlogs:
    """The tenants of many queues, one row per queue. All values are in microseconds, except numbers of requests."""

    def __init__(self) -> None:
        self._figures = np.zeros((7, FIRST_ROWS, FIRST_ENTRIES))
        self._tenants: list[list[Tenant]] = []
        self._free: list[int] = []
        """Indexes of rows that are not in use."""

    def take_row(self) -> int:
        """Return the index of an unused row. There is always one further row, which stays empty; queries use it for
        instances without a row.
        """
        if self._free:
            return self._free.pop()
        self._tenants.append([])
        if len(self._tenants) >= self._figures.shape[1]:
            self._grow(1)
        return len(self._tenants) - 1

    def give_back(self, row: int) -> None:
        """Make a row available for another queue. No request may wait in the row."""
        self._tenants[row].clear()
        self._figures[:, row] = 0.0
        self._free.append(row)

    def add(self, row: int, tenant: Tenant) -> None:
        """Add a tenant that begins to wait. Call `change` to set its values."""
        row_tenants = self._tenants[row]
        tenant.entry = len(row_tenants)
        row_tenants.append(tenant)
        if len(row_tenants) > self._figures.shape[2]:
            self._grow(2)

    def change(self, row: int, tenant: Tenant) -> None:
        """Write the values of a tenant after its waiting or served work has changed."""
        self._figures[:, row, tenant.entry] = tenant.figures()

    def remove(self, row: int, tenant: Tenant) -> None:
        """Remove a tenant that has no waiting requests. The last tenant of the row gets the index of the removed
        tenant.
        """
        row_tenants, entry = self._tenants[row], tenant.entry
        last = row_tenants.pop()
        if last is not tenant:
            row_tenants[entry] = last
            last.entry = entry
            self._figures[:, row, entry] = self._figures[:, row, len(row_tenants)]
        self._figures[:, row, len(row_tenants)] = 0.0

    def able_beyond(self, points: FloatVector, first: int = 0) -> FloatVector:
        """Return, for each row from `first` on, the microseconds of the waiting work that can be in time and that lies
        beyond the row's entry of `points`: the work that is sent after its tenant's served work has reached this entry.
        """
        width = self._width(first, len(points))
        ends, works, rates = self._figures[: _ABLE_RATE + 1, first : first + len(points), :width]
        return _whole(_beyond(ends, works, points) * rates)

    def all_beyond(self, points: FloatVector, first: int = 0) -> FloatVector:
        """Return, for each row from `first` on, the microseconds of all waiting work, late or not, that lies beyond the
        row's entry of `points`: the work that is sent after its tenant's served work has reached this entry.
        """
        width = self._width(first, len(points))
        ends, works, rates = self._figures[_END : _RATE + 1, first : first + len(points), :width]
        return _whole(_beyond(ends, works, points) * rates)

    def requests_beyond(self, point: float, row: int) -> int:
        """Return the number of waiting requests of a row that lie beyond `point`: the requests that are sent after
        their tenant's served work has reached `point`.
        """
        ends, works, _, rates = self._figures[_END:, row, : len(self._tenants[row])]
        return int(float((np.minimum(np.maximum(ends - point, 0.0), works) * rates).sum()) + ROUNDING)

    def _width(self, first: int, rows: int) -> int:
        return max(map(len, self._tenants[first : first + rows]), default=0)

    def _grow(self, axis: int) -> None:
        self._figures = np.concatenate((self._figures, np.zeros_like(self._figures)), axis=axis)


def _beyond(ends: FloatVector, works: FloatVector, points: FloatVector) -> FloatVector:
    left: FloatVector = ends - points[:, np.newaxis]
    np.maximum(left, 0.0, out=left)
    return np.minimum(left, works, out=left)


def _whole(shares: FloatVector) -> FloatVector:
    """Return the sum of each row, rounded to whole microseconds."""
    found: FloatVector = np.floor(np.add.reduce(shares, axis=1) + ROUNDING)
    return found
