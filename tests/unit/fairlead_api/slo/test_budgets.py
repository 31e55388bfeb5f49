import pytest

from fairlead.latency_cells import cell_of
from fairlead_api.slo.budgets import WINDOWS, Counts, Kept, alerts, burn_window, by_version, share_of, total, what_if


def kept(judged: int, within: int, version: int = 1, name: str = "default", refused: int = 0, failed: int = 0) -> Kept:
    counts = Counts(judged=judged, within_slo=within, refused=refused, failed=failed)
    return Kept(version=version, priority_class=name, counts=counts)


def test_a_budget_used_up_exactly_burns_at_one() -> None:
    window = burn_window("1h", None, [kept(1000, 900)], by_version({1: 90.0}))
    assert window.late == 100
    assert (window.allowed, window.burn) == pytest.approx((100, 1.0))
    assert burn_window("1h", None, [kept(1000, 856)], by_version({1: 99.0})).burn == pytest.approx(14.4)


def test_each_version_allows_its_own_share() -> None:
    window = burn_window("1h", None, [kept(1000, 980, version=1), kept(1000, 980, version=2)], by_version({1: 99.0, 2: 90.0}))
    assert window.late == 40
    assert (window.allowed, window.burn) == pytest.approx((110, 40 / 110))


def test_refused_and_failed_requests_burn_only_in_the_figure_of_all() -> None:
    window = burn_window("1h", None, [kept(80, 80, refused=15, failed=5)], by_version({1: 90.0}))
    assert (window.burn, window.burn_of_all) == pytest.approx((0.0, 2.0))


def test_without_requests_or_without_a_budget_nothing_burns() -> None:
    assert burn_window("1h", None, [], by_version({1: 90.0})).burn is None
    assert burn_window("1h", None, [kept(10, 5)], by_version({1: 100.0})).burn is None
    assert burn_window("1h", None, [kept(10, 5, version=7)], by_version({1: 90.0})).requests == 0, "a version that nobody knows"


@pytest.mark.parametrize(
    ("percentile", "late", "burning"),
    [
        (99.0, {"1h": 15, "5m": 15}, [True, None, None]),
        (99.0, {"1h": 15, "5m": 10}, [False, None, None]),
        (99.0, {"6h": 7, "30m": 7, "3d": 2}, [None, True, True]),
        (90.0, {"1h": 85, "5m": 85}, [True, None, None]),
        (90.0, {"1h": 75, "5m": 85}, [False, None, None]),
        (50.0, {"1h": 90, "5m": 90}, [True, None, None]),
    ],
)
def test_an_alert_needs_both_its_windows(percentile: float, late: dict[str, int], burning: list[bool | None]) -> None:
    """Each window has late requests of a hundred. With a goal of 90 % the burn is at most 10, so the fast alert begins
    at 8.
    """
    windows = [
        burn_window(name, None, [kept(100, 100 - late[name])] if name in late else [], by_version({1: percentile})) for name in WINDOWS
    ]
    assert [alert.burning for alert in alerts(windows, percentile)] == burning


def test_shares_of_nothing_are_none() -> None:
    empty = share_of(None, None, Counts())
    assert (empty.attainment, empty.tpot_attainment, empty.served_in_time) == (None, None, None)
    some = share_of(1, "low", total([kept(60, 45, refused=10), kept(20, 15, failed=10)]))
    assert (some.attainment, some.served_in_time) == (0.75, 0.6)


def test_other_targets_are_asked_of_each_class_and_of_all() -> None:
    cells = {"high": {cell_of(1.0, 0.02): 90, cell_of(4.0, 0.02): 10}, "low": {cell_of(4.0, None): 50, cell_of(9.5, 0.02): 50}}
    counts = {"high": Counts(judged=100, within_slo=100), "low": Counts(judged=100, within_slo=50, refused=7)}
    whole, (high, low) = what_if(cells, counts, 2.0, 0.1, 90.0)
    assert (high.in_time_least, high.attainment_most, high.met, high.attainment) == (90, 0.9, True, 1.0)
    assert (low.in_time_most, low.met, low.refused) == (0, False, 7)
    assert (whole.requests, whole.in_time_least, whole.attainment, whole.refused) == (200, 90, 0.75, 7)
    between, _ = what_if(cells, counts, 9.9, 0.1, 90.0)
    assert (between.in_time_least, between.in_time_most, between.met) == (150, 200, None)
    assert what_if({}, {}, 2.0, 0.1, 90.0)[0].met is None
