"""Which clients may claim a priority class, and to which client a request belongs."""

from dataclasses import replace

import pytest

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import PriorityClass
from fairlead_router.gateway.claims import priority_class, tenant
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKey
from fairlead_router.pools.pool import Pool
from fairlead_testing.builders.routing import table

CLASSES = (PriorityClass(name="interactive", priority=10), PriorityClass(name="batch", priority=-1))
OLD, NEW = b"x-gateway-inference-objective", b"x-llm-d-inference-objective"


def pool(*classes: PriorityClass, fairness: str = "None") -> Pool:
    plain = table(1, classes=classes)
    of = replace(plain, routing=replace(plain.routing, fairness=fairness))
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


OLD_ID, NEW_ID = b"x-gateway-inference-fairness-id", b"x-llm-d-inference-fairness-id"


def whose(headers: list[tuple[bytes, bytes]], shown: GatewayKey | None, *, trusted: bool, fairness: str = "Tenants") -> str:
    return tenant(headers, shown, pool(fairness=fairness), trusted=trusted)


def test_a_request_is_of_its_key_whatever_it_says() -> None:
    assert whose([(NEW_ID, b"other")], key(), trusted=True) == "k-1"
    assert whose([], key(name="k-2"), trusted=False) == "k-2"


@pytest.mark.parametrize("shown", [None, SHARED])
def test_a_trusted_client_names_the_tenant_and_only_a_digest_is_kept(shown: GatewayKey | None) -> None:
    named = whose([(NEW_ID, b" team-a ")], shown, trusted=True)
    assert named == whose([(OLD_ID, b"team-a")], shown, trusted=True) == whose([(OLD_ID, b"b"), (NEW_ID, b"team-a")], shown, trusted=True)
    assert named != whose([(NEW_ID, b"team-b")], shown, trusted=True)
    assert named.startswith("named/")
    assert "team" not in named
    assert len(named) == len("named/") + 16


@pytest.mark.parametrize(
    ("headers", "shown", "trusted"), [([], None, True), ([(NEW_ID, b"")], None, True), ([(NEW_ID, b"a")], None, False), ([], SHARED, True)]
)
def test_all_others_are_one_tenant(headers: list[tuple[bytes, bytes]], shown: GatewayKey | None, trusted: bool) -> None:
    assert whose(headers, shown, trusted=trusted) == ""


def test_a_pool_without_fairness_asks_nobody() -> None:
    assert whose([(NEW_ID, b"a")], key(), trusted=True, fairness="None") == ""
