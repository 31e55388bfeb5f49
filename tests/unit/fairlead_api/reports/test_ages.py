"""Up to which age rows of reports are accepted."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.batches import ROW_KINDS, RowTime
from fairlead_api.reports.plausibility import CLOCK_TOLERANCE_SECONDS
from fairlead_api.reports.routes import report_ages
from fairlead_api.settings import ROLLED_UP, Retention

DAYS = st.integers(1, 500)
SETTINGS = sorted({"reports_days", *ROLLED_UP, *(kind.kept for kind in ROW_KINDS.values() if kind.kept)})


@given(st.fixed_dictionaries(dict.fromkeys(SETTINGS, DAYS)))
def test_no_report_that_is_sent_again_is_counted_again_whatever_is_kept_for_how_long(days: dict[str, int]) -> None:
    rolled_up = sorted(days[name] for name in ROLLED_UP)
    retention = Retention(**days | dict(zip(ROLLED_UP, rolled_up, strict=True)))
    for name, seconds in report_ages(retention).items():
        first_stored_at = -seconds - CLOCK_TOLERANCE_SECONDS  # a router's clock may be that much ahead
        assert first_stored_at >= -86_400 * retention.reports_days, f"ids are deleted while rows of {name} are accepted"


def test_every_row_that_has_a_time_and_no_id_of_its_own_has_a_greatest_age() -> None:
    timed = {name for name, kind in ROW_KINDS.items() if kind.time not in (RowTime.HISTORY, RowTime.NONE)}
    of_sums = {"usage", "key_use", "traffic"}
    assert timed | of_sums <= report_ages(Retention()).keys()
