"""Whose held requests are refused when there is no room for another one."""

from dataclasses import replace

from fairlead.routing.queues.accounting import TrackedRequest
from fairlead.routing.scheduling.giving_way import GivingWay, in_bytes
from fairlead_testing.builders.routing import request


def held(*sizes: int) -> list[TrackedRequest]:
    """Return requests of one tenant with bodies of these sizes, the oldest first."""
    return [
        TrackedRequest(request=replace(request(f"r{place}"), tenant="flood", body_bytes=size), submitted_at=float(place))
        for place, size in enumerate(sizes)
    ]


def test_the_newest_leave_but_for_those_that_free_nothing() -> None:
    givers = GivingWay(held(40, 0, 30, 0), replace(request("new"), tenant="other", body_bytes=5))
    leaving = givers.freeing(50, in_bytes)
    assert leaving is not None
    assert [one.request.id for one in leaving] == ["r2", "r0"]
