"""The small pure parts: diffs, drains, tables, times, grids, owners, effects, notices, settings."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.draining import spread
from fairlead.errors import InvalidInput
from fairlead.instances import InstanceState, Role
from fairlead.pool_states import InstanceReport
from fairlead.pools import parse_spec
from fairlead.reports import Binding, BindingReason
from fairlead.table_content import changed_entries, table_of
from fairlead.tables import PoolKey
from fairlead_api.services.history.heatmaps import MAX_COLUMNS, grid
from fairlead_api.services.history.times import parse_range, parse_time
from fairlead_api.services.plans.effects import InstanceUse, ScaleBasis, scale_effect
from fairlead_api.services.plans.owners import owner_of
from fairlead_api.services.pools.diffs import diff
from fairlead_api.services.pools.fingerprints import fingerprint
from fairlead_api.services.pools.mirroring import InstanceFacts, RouterView, observations
from fairlead_api.services.streams.notices import BindingsChanged, decode, payloads
from fairlead_api.settings import from_environment, parse_bootstrap_tokens

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
POOL = PoolKey(namespace="n", name="p")


def test_a_diff_names_each_changed_path_and_lists_by_name() -> None:
    before = {"replicas": 2, "slo": {"ttft": "5s"}, "roles": [{"name": "both", "maxReplicas": 4}], "a/b": 1}
    after = {"replicas": 3, "slo": {"ttft": "5s", "tpot": "1s"}, "roles": [{"name": "both", "maxReplicas": 8}]}
    assert diff(before, after) == [
        {"op": "remove", "path": "/a~1b", "before": 1, "after": None},
        {"op": "replace", "path": "/replicas", "before": 2, "after": 3},
        {"op": "replace", "path": "/roles/both/maxReplicas", "before": 4, "after": 8},
        {"op": "add", "path": "/slo/tpot", "before": None, "after": "1s"},
    ]
    assert diff(before, before) == []


@given(st.integers(0, 60), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 20), max_size=6))
def test_a_drain_levels_the_sessions(count: int, bound: dict[str, int]) -> None:
    sessions = [f"s{number}" for number in range(count)]
    targets = spread(sessions, bound)
    assert set(targets) == (set(sessions) if bound else set())
    after = Counter(targets.values())
    took = [bound[name] + after[name] for name in bound if after[name]]
    assert not took or max(took) - min(bound[name] + after[name] for name in bound) <= 1


def report(name: str, state: InstanceState, address: str | None = "127.0.0.1:8000", weight: float = 1.0) -> InstanceReport:
    return InstanceReport(id=name, pod_uid="u", address=address, role=Role.BOTH, state=state, reason="r", weight=weight, created_at=0.0)


def test_a_table_holds_reachable_instances_and_anchors_only_for_accepting_ones() -> None:
    facts = parse_spec({"model": "m", "routing": {"anchorsPerInstance": 7}}).facts()
    states = [report(state.value, state) for state in InstanceState] + [report("bare", InstanceState.SERVING, None)]
    table = table_of(POOL, "u", 1, facts, states)
    assert {entry.id: entry.anchors for entry in table.instances} == {"Warming": 7, "Serving": 7, "Cordoned": 0, "Draining": 0}


def test_only_what_routers_act_on_changes_a_tables_fingerprint() -> None:
    facts = parse_spec({"model": "m"}).facts()
    one = table_of(POOL, "u", 1, facts, [report("a", InstanceState.SERVING), report("b", InstanceState.SERVING)])
    same = table_of(POOL, "u", 9, facts, [report("b", InstanceState.SERVING), report("a", InstanceState.SERVING)])
    other = table_of(POOL, "u", 1, facts, [report("a", InstanceState.SERVING), report("b", InstanceState.DRAINING)])
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(other) != fingerprint(table_of(POOL, "v", 1, facts, []))
    assert changed_entries(one, other) == {"b"}
    assert changed_entries(None, one) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", NOW),
        ("now-90s", NOW - timedelta(seconds=90)),
        ("now-7d", NOW - timedelta(days=7)),
        ("2026-11-21T09:00:00Z", NOW - timedelta(hours=1)),
        ("2026-11-21T11:00:00 02:00", NOW - timedelta(hours=1)),
        ("2026-11-21T09:00:00", NOW - timedelta(hours=1)),
    ],
)
def test_times_are_read_as_people_write_them(text: str, found: datetime) -> None:
    assert parse_time("from", text, NOW) == found


@pytest.mark.parametrize("text", ["", "yesterday", "now-1y", "now-999999d", "2026-13-01T00:00:00Z", "now+1h"])
def test_a_time_that_cannot_be_read_names_its_field(text: str) -> None:
    with pytest.raises(InvalidInput, match="RFC 3339"):
        parse_time("to", text, NOW)
    with pytest.raises(InvalidInput, match="before"):
        parse_range("now", "now-1h", NOW)


@given(st.integers(1, 400 * 86400), st.integers(1, MAX_COLUMNS))
def test_a_grid_covers_its_range_with_no_more_columns_than_asked(seconds: int, columns: int) -> None:
    if seconds / columns > 80000:
        return
    start = NOW - timedelta(seconds=seconds)
    try:
        found = grid(start, NOW, columns)
    except InvalidInput:
        assert columns < 2 or seconds / (columns - 1) > 80000
        return
    assert found.columns <= columns
    assert found.start <= start
    assert found.end >= NOW
    assert int(found.start.timestamp()) % found.step == 0


@pytest.mark.parametrize(
    ("labels", "annotations", "managers", "owner"),
    [
        ({}, {}, ("kubectl-client-side-apply", "fairlead-api"), None),
        ({}, {"argocd.argoproj.io/tracking-id": "shop:x"}, (), "Argo CD (shop)"),
        (
            {"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux"},
            {},
            (),
            "Flux (kustomize flux/apps)",
        ),
        ({"app.kubernetes.io/managed-by": "Helm"}, {"meta.helm.sh/release-name": "chat"}, (), "Helm (chat)"),
        ({}, {}, ("argocd-controller",), "Argo CD"),
    ],
)
def test_owners_are_known_by_their_marks(
    labels: dict[str, str], annotations: dict[str, str], managers: tuple[str, ...], owner: str | None
) -> None:
    assert owner_of(labels, annotations, managers) == owner


def basis(*uses: tuple[str, str, int, int], rps: float | None = None) -> ScaleBasis:
    return ScaleBasis(
        instances=[
            InstanceUse(id=name, state=state, bound_sessions=bound, cache_tokens=cached, in_flight=0) for name, state, bound, cached in uses
        ],
        attainment=1.0,
        requests_per_second=rps,
        miss_tokens_per_second=None if rps is None else rps * 1000,
        prefill_tokens_per_second=5000,
        ttft_slo_seconds=1.0,
    )


def test_victims_are_the_cheapest_and_heaviness_counts_their_sessions() -> None:
    pool = basis(("a", "Serving", 10, 500), ("b", "Serving", 1, 900), ("c", "Serving", 30, 10), ("d", "Starting", 0, 0))
    assert scale_effect(pool, 4, 2).victims == ["d", "c"]
    assert scale_effect(pool, 4, 3).victims == ["d"]
    assert (scale_effect(pool, 4, 3).heavy, scale_effect(pool, 4, 2).heavy, scale_effect(pool, 4, 0).heavy) == (False, True, True)
    assert scale_effect(pool, 4, 6).instances_added == 2
    assert scale_effect(pool, 4, 6).predicted_attainment is None


def test_sessions_move_while_somebody_is_left_to_take_them_and_are_lost_otherwise() -> None:
    pool = basis(("a", "Serving", 10, 500), ("b", "Serving", 4, 900))
    half, none = scale_effect(pool, 2, 1), scale_effect(pool, 2, 0)
    assert (half.sessions_moved, half.sessions_lost) == (4, 0)
    assert (none.sessions_moved, none.sessions_lost) == (0, 14)
    assert any("14 of 14 sessions are lost" in warning for warning in none.warnings)


def test_a_prediction_says_what_it_is_made_from_and_without_traffic_there_is_none() -> None:
    busy, quiet = scale_effect(basis(("a", "Serving", 1, 1), rps=12), 4, 3), scale_effect(basis(("a", "Serving", 1, 1)), 4, 3)
    assert busy.prediction_basis is not None and "12.0 requests/s" in busy.prediction_basis
    assert (quiet.predicted_attainment, quiet.prediction_basis) == (None, None)


def test_more_instances_never_predict_worse() -> None:
    pool = basis(("a", "Serving", 1, 1), rps=12)
    found = [scale_effect(pool, 4, after).predicted_attainment or 0.0 for after in range(8)]
    assert found == sorted(found)
    assert found[0] == found[2] == 0.0
    assert found[7] > 0.9
    assert "faster than" in scale_effect(pool, 4, 2).warnings[0]


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


def test_without_live_routers_everything_is_acknowledged_and_with_an_ignorant_one_nothing() -> None:
    instances = [InstanceFacts(id="a", table_version=3, bound_sessions=1, cache_tokens=2)]

    def acknowledged(*routers: RouterView) -> tuple[bool, bool]:
        found = observations(4, routers, instances, attainment=None, requests_per_second=0.0)
        return found.table_acknowledged, found.instances[0].acknowledged

    assert acknowledged() == (True, True)
    assert acknowledged(RouterView(acknowledged=3, in_flight={})) == (False, True)
    assert acknowledged(RouterView(acknowledged=4, in_flight={}), RouterView(acknowledged=None, in_flight={})) == (False, False)


def test_settings_never_show_a_secret_in_an_error() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_bootstrap_tokens("admin:me:short")
    assert "short" not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        from_environment({"FAIRLEAD_DATABASE_URL": "postgres://me:topsecret@host/db"})
    assert "topsecret" not in str(caught.value)
    tokens = parse_bootstrap_tokens("admin:me:0123456789abcdef, system-router:router:0123456789:abcdef")
    assert [(token.role, token.name, token.secret) for token in tokens] == [
        ("admin", "me", "0123456789abcdef"),
        ("system-router", "router", "0123456789:abcdef"),
    ]
