"""Notices between API processes."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.tables import PoolKey
from fairlead_api.infra.notices import BindingsChanged, decode, payloads

POOL = PoolKey(namespace="n", name="p")


@given(st.lists(st.text(min_size=1, max_size=600), min_size=1, max_size=80))
def test_notices_fit_into_a_notification_and_lose_nothing(names: list[str]) -> None:
    bindings = tuple(
        Binding(pool=POOL, session=name, instance="a", version=1, reason=BindingReason.COLD, bound_at=1.0, migrated_at=None)
        for name in names
    )
    texts = list(payloads([BindingsChanged(bindings)]))
    assert all(len(text.encode()) < 8000 for text in texts)
    back = [binding for text in texts if isinstance(notice := decode(text), BindingsChanged) for binding in notice.bindings]
    assert tuple(back) == bindings
