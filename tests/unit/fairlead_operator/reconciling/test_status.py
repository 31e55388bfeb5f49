"""Status patches."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead_operator.merge_patches import merge_patch
from fairlead_operator.reconciling.status import is_urgent
from fairlead_testing.examples import examples
from fairlead_testing.fakes.cluster import merged

values: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 3) | st.text(max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@examples(200)
@given(documents, documents)
def test_a_merge_patch_makes_the_new_of_the_old_and_is_empty_for_equals(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, merge_patch(old, new)) == new
    assert merge_patch(new, new) == {}


def test_figures_and_wording_are_not_urgent_but_reasons_are() -> None:
    def status(kind: str, reason: str, message: str, attained: float) -> dict[str, Any]:
        return {"serving": 1, "slo": {"ttftAttainment": attained}, "conditions": [{"type": kind, "reason": reason, "message": message}]}

    base = status("SLOMet", "TargetMet", "95%", 0.95)
    assert not is_urgent(base, status("SLOMet", "TargetMet", "96%", 0.96))
    assert is_urgent(base, status("SLOMet", "TargetMissed", "80%", 0.8))
    paused, later = ({**base, "rollout": {"phase": "Paused", "updatedAt": at}} for at in ("10:00:00", "10:00:01"))
    assert not is_urgent(paused, later), "a rollout that is paused has nothing new to tell each second"
    assert is_urgent(paused, {**base, "rollout": {"phase": "Progressing", "updatedAt": "10:00:01"}})
    assert is_urgent(status("Ready", "R", "1 of 2", 1), status("Ready", "R", "2 of 2", 1))
