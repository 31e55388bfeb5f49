"""The costs of the policy `fairlead`: computed one by one they equal those computed over vectors, to the last bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.reports.bindings import Binding, BindingReason
from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, PoolVectors
from fairlead.routing.policies import fairlead
from fairlead.routing.policies.fairlead import Fairlead, FairleadParameters
from fairlead_testing.builders.routing import POOL, ScriptedView, load_of, request, table
from fairlead_testing.examples import examples

NOW = 100.0
MICROSECONDS = st.sampled_from([0, 40_000, 500_000, 3_000_001])
LOADS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    pending_prefill_microseconds=MICROSECONDS,
    in_flight=st.dictionaries(st.just("r0"), st.tuples(st.floats(90.0, NOW), MICROSECONDS), max_size=1),
    decode_tokens=st.integers(0, 3),
    sessions=st.integers(0, 2),
    kv_usage=st.none() | st.floats(0.0, 1.0),
    last_first_token_at=st.none() | st.floats(95.0, NOW),
    lasting_pace=st.sampled_from([1.0, 1.0, 1.1, 1.7]),
)


class DecodingView(ScriptedView):
    """A pool whose decodes need some of its time, and in which requests may overtake some of the waiting ones."""

    overtakes = False

    def vectors(self) -> PoolVectors:
        return PoolVectors.of(self.candidates(), 1000, lambda load: 0.2 * load.decode_tokens)

    def overtaken_seconds(self, request: RoutingRequest) -> FloatVector | None:
        return self.vectors().wait_seconds * 0.3 if self.overtakes else None


@examples(200)
@given(
    st.lists(st.tuples(LOADS, st.sampled_from([0, 512, 4096])), min_size=1, max_size=9),
    st.sampled_from([0.2, 0.7, 1.3]),
    st.booleans(),
    st.booleans(),
    st.dictionaries(st.sampled_from(["i0", "i2"]), st.floats(0.0, 2.0)),
    st.none() | st.lists(st.sampled_from([0.0, 1_190_000.0, 1_300_000.0]), min_size=9, max_size=9),
)
def test_a_few_instances_are_compared_as_many_are(
    counters: list[tuple[dict[str, Any], int]],
    load_of_pool: float,
    overtakes: bool,
    has_home: bool,
    loading: dict[str, float],
    kept: list[float] | None,
) -> None:
    loads: dict[str, InstanceLoad] = {f"i{place}": load_of(f"i{place}", **each) for place, (each, _) in enumerate(counters)}
    hits = {("r", f"i{place}"): hit for place, (_, hit) in enumerate(counters)}
    home = Binding(
        pool=POOL, session="s", instance="i0", version=1, reason=BindingReason.COLD, bound_at=0.0, migrated_at=None, context_tokens=6000
    )
    view = DecodingView(table([load.entry for load in loads.values()]), loads, hits, {"s": home} if has_home else {}, NOW)
    view.load_of_pool = load_of_pool
    view.overtakes, view.loading = overtakes, loading
    view.kept = None if kept is None else np.array(kept[: len(view.candidates())])
    asked = request("r", 8000, session="s" if has_home else None)
    policy = Fairlead(FairleadParameters(keep_weight=2.0))
    few = policy.choose(asked, view, NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fairlead, "FEW", 0)
        many = policy.choose(asked, view, NOW)
    assert few == many
    assert few.weigh() == many.weigh()
