"""Who may claim which priority class."""

import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import PriorityClass
from fairlead_router.claims import priority_class
from fairlead_router.keys import GatewayKey
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pool import Pool
from fairlead_testing.builders.routing import table

CLASSES = (PriorityClass(name="interactive", priority=10), PriorityClass(name="batch", priority=-1))
OLD, NEW = b"x-gateway-inference-objective", b"x-llm-d-inference-objective"


def pool(*classes: PriorityClass) -> Pool:
    of = table(1, classes=classes)
    return Pool(of, PoolScheduler(of, "router-0", 0), RouterMetrics(), 0.0)


def key(of_class: str | None = None, name: str = "k-1") -> GatewayKey:
    return GatewayKey(GatewayKeyFacts(id=name, digest="00", priority_class=of_class), 0.0)


SHARED = key(name="")


@pytest.mark.parametrize(
    ("headers", "shown", "trusted", "expected"),
    [
        ([], None, True, "default"),
        ([(NEW, b"interactive")], None, True, "interactive"),
        ([(OLD, b"batch")], None, True, "batch"),
        ([(OLD, b"batch"), (NEW, b"interactive")], None, True, "interactive"),
        ([(NEW, b"interactive")], None, False, "default"),
        ([(NEW, b"batch")], None, False, "batch"),
        ([(NEW, b"interactive")], SHARED, False, "interactive"),
        ([(NEW, b"interactive")], key(), True, "default"),
        ([(NEW, b"batch")], key(), True, "batch"),
        ([], key("interactive"), True, "interactive"),
        ([(NEW, b"batch")], key("interactive"), True, "batch"),
        ([(NEW, b"interactive")], key("batch"), True, "batch"),
        ([(NEW, b"\xff\x00vip")], key("batch"), True, "batch"),
        ([], key("of-another-pool"), True, "default"),
    ],
)
def test_a_request_gets_the_class_that_its_client_may_have(
    headers: list[tuple[bytes, bytes]], shown: GatewayKey | None, trusted: bool, expected: str
) -> None:
    assert priority_class(headers, shown, pool(*CLASSES), trusted=trusted) == expected


def test_in_a_pool_without_classes_nobody_claims_any() -> None:
    assert priority_class([(NEW, b"interactive")], key("interactive"), pool(), trusted=True) == "default"
