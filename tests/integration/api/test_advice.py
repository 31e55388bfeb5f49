"""Advice and trends over HTTP, from reports in Postgres."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fairlead.advice.findings import Cause, EvidenceKind, HarmUnit, Level
from fairlead.instances import InstanceState, Role
from fairlead.latency_cells import EDGES, cell_of
from fairlead.pool_states import PoolState
from fairlead.reports.arrivals import ArrivalSample
from fairlead.reports.batches import Acknowledgement, RouterGone
from fairlead.reports.bindings import BindingChange, BindingReason
from fairlead.reports.decisions import Attempt, CandidateScore, DecisionReason, DecisionRecord, KeptFor, RequestOutcome, Weighing
from fairlead.reports.engines import EngineTrouble, LearntFigure, Quantity, TroubledEngine
from fairlead.reports.loads import InstanceInFlight
from fairlead.reports.moves import MigrationRecord
from fairlead.reports.objectives import SloSample
from fairlead.reports.rejections import RejectionReason, RejectionRecord
from fairlead.scaling.decisions import ScalingDecisionRecord
from fairlead.scaling.recommendations import Cause as ScalingCause
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead.tables import PoolKey
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.advice import Advice
from fairlead_client.resources.audit import AuditKind
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_client.resources.plans import PROPOSER, ApplyRequest, PlanState
from fairlead_client.resources.webhooks import NoticeKind, WebhookRequest
from fairlead_testing.fakes.cluster_gateway import FakeClusterGateway
from fairlead_testing.running.api import CHAT, SPEC, ApiInstance, a_binding, a_load, a_report, a_state, an_instance, running_api
from fairlead_testing.running.postgres import plain

LATE: dict[str, Any] = {"requests": 1, "completed": 1, "ttft_total": 1, "judged_by_slo": 1, "tpot_total": 1, "tpot_within_slo": 1}


@pytest.fixture
def cluster() -> FakeClusterGateway:
    fake = FakeClusterGateway()
    fake.add(CHAT, 2)
    return fake


@pytest.fixture
async def api(database_url: str, cluster: FakeClusterGateway) -> AsyncIterator[ApiInstance]:
    async with running_api(database_url, overrides={"cluster": cluster}) as instance:
        yield instance


async def overload(api: ApiInstance) -> None:
    """Report half a minute in which two instances that prefill 1,000 tokens/s each are sent 4,000; half is refused."""
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    last = int(api.clock().timestamp()) - 3
    seconds = range(last - 30, last)
    work: dict[str, Any] = {"prompt_tokens": 1000, "prefilled_tokens": 1000, "prefilling_seconds": 1.0, "pending_prefill_tokens": 7000}
    loads = tuple(a_load(name, second, within_slo=0, **LATE, **work) for name in "ab" for second in seconds)
    arrivals = tuple(ArrivalSample(pool=CHAT, second=second, requests=4, prompt_tokens=4000) for second in seconds)
    refused = tuple(
        RejectionRecord(
            pool=CHAT,
            second=second,
            reason=RejectionReason.PREDICTED_TTFT,
            count=2,
            status=429,
            sample_request="r",
            sample_prompt_tokens=1000,
            retry_after_seconds=1.0,
        )
        for second in seconds
    )
    acknowledged = (Acknowledgement(pool=CHAT, version=1),)
    await api.router.post_report(a_report("r1", loads=loads, arrivals=arrivals, rejections=refused, acknowledged=acknowledged))
    await api.app.state.upkeep.roll_up(api.clock())


async def test_a_figure_that_has_been_off_for_minutes_is_told_until_its_router_says_otherwise(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    figure = LearntFigure(
        pool=CHAT,
        instance=None,
        quantity=Quantity.PREFILL,
        learnt=1 / 25_000,
        declared=1 / 6250,
        samples=400,
        error=0.1,
        declared_error=3.0,
        in_use=False,
        predicted=1 / 6250,
        observed=1 / 25_000,
        off_seconds=240.0,
    )
    acknowledged = (Acknowledgement(pool=CHAT, version=1),)
    await api.router.post_report(a_report("r1", acknowledged=acknowledged, learnt_figures=(figure,)))
    (found,) = [one for one in (await api.viewer.advice(CHAT)).items if one.cause is Cause.FIGURE_OFF]
    assert "use 6,250 prompt tokens/s, but engines have shown 25,000 prompt tokens/s for 4 min" in found.sentence
    mended = replace(figure, predicted=1 / 25_000, off_seconds=0.0)
    await api.router.post_report(a_report("r2", acknowledged=acknowledged, learnt_figures=(mended,)))
    assert Cause.FIGURE_OFF not in {one.cause for one in (await api.viewer.advice(CHAT)).items}


async def test_a_figure_is_the_mean_weighted_by_what_each_router_saw(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
    acknowledged = (Acknowledgement(pool=CHAT, version=1),)
    for router, samples, observed in (("router-0", 300, 1 / 25_000), ("router-1", 100, 1 / 5000)):
        figure = LearntFigure(
            pool=CHAT,
            instance=None,
            quantity=Quantity.PREFILL,
            learnt=observed,
            declared=None,
            samples=samples,
            error=0.1,
            declared_error=None,
            in_use=False,
            predicted=1 / 2500,
            observed=observed,
            off_seconds=240.0,
        )
        await api.router.post_report(a_report(router, router, acknowledged=acknowledged, learnt_figures=(figure,)))
    (found,) = [one for one in (await api.viewer.advice(CHAT)).items if one.cause is Cause.FIGURE_OFF]
    assert "use 2,500 prompt tokens/s, but engines have shown 12,500 prompt tokens/s" in found.sentence


async def test_the_error_of_predictions_is_the_mean_over_all_prefills_as_on_the_pools_page(api: ApiInstance) -> None:
    """A router that saw one prefill has less weight than one that saw hundreds."""
    spec = {**SPEC, "earlyRejection": {"mode": "Load"}}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), spec=spec))
    acknowledged = (Acknowledgement(pool=CHAT, version=1),)
    for router, samples, error in (("router-0", 300, 0.2), ("router-1", 100, 0.6)):
        figure = LearntFigure(
            pool=CHAT,
            instance=None,
            quantity=Quantity.PREFILL,
            learnt=1 / 6250,
            declared=1 / 6250,
            samples=samples,
            error=error,
            declared_error=None,
            in_use=True,
        )
        await api.router.post_report(a_report(router, router, acknowledged=acknowledged, learnt_figures=(figure,)))
    (found,) = [one for one in (await api.viewer.advice(CHAT)).items if one.cause is Cause.PREDICTIONS_OFF]
    assert "with a mean error of 30.0 %" in found.sentence


async def test_an_overloaded_pool_is_told_with_a_plan_that_can_be_made_and_applied(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    """No simulation runs here, so the number is an estimate and labelled as one; it stays while the signals change."""
    begun = api.clock()
    await overload(api)
    api.clock.stop()
    api.clock.skipped += begun - api.clock()  # however long that took, the half minute is the last one
    await api.router.post_report(a_report("r2", acknowledged=(Acknowledgement(pool=CHAT, version=1),)))
    first = (await api.viewer.advice()).items[0]
    assert first.sentence.endswith("because 2 of 2 instances are saturated; the number of replicas that it needs is being simulated.")
    assert first.plan is None
    await api.app.state.sizing.look(api.clock())
    await api.app.state.sizing.look(api.clock())
    report = await api.viewer.advice(CHAT)
    found = report.items[0]
    assert "an estimate from rates alone says that it needs" in found.sentence
    assert "no simulation confirms this: this control API simulates nothing" in found.sentence
    assert (found.cause, found.level, found.unit) == (Cause.SATURATED, Level.BAD, HarmUnit.REQUESTS)
    assert found.evidence.kind is EvidenceKind.HEATMAP
    assert found.plan == PlanRequest(kind=PlanKind.SCALE, replicas=found.plan.replicas if found.plan else 0)
    assert found.plan is not None
    plan = await api.operator.create_plan(CHAT, found.plan)
    assert (plan.effect.predicted_attainment, plan.effect.prediction_basis) == (None, None)
    assert (await api.operator.apply_plan(plan.id, ApplyRequest())).state == "applied"
    assert cluster.spec(CHAT)["replicas"] == found.plan.replicas
    assert found.plan_words == f"{found.plan.replicas} replicas (estimate)"
    assert (report.pools, report.complete) == (1, True)


async def test_a_target_that_even_idle_instances_miss_is_found_with_the_target_that_they_meet(api: ApiInstance) -> None:
    """A quarter of the requests waited behind others and does not count, nor does one that another instance failed."""
    target = {**SPEC, "slo": {"ttft": "1ms"}}
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), spec=target))
    at = api.clock().timestamp() - 3

    def decision(number: int, pending: int, **changes: Any) -> DecisionRecord:
        score = CandidateScore(instance="a", hit_tokens=0, miss_tokens=9, pending_tokens=pending, predicted_ttft_seconds=0.01, total=1.0)
        values: dict[str, Any] = {
            "id": f"{number:032x}", "pool": CHAT, "request": f"q{number}", "session": None, "at": at, "policy": "fairlead", "chosen": "a",
            "table_version": 1, "runner_up": "b", "reason": DecisionReason.LEAST_LOADED, "prompt_tokens": 9, "served_by": "a",
            "ttft_seconds": 0.05 if not pending else 0.5, "queued_seconds": 0.01, "kept": KeptFor.LATE, "outcome": RequestOutcome.SERVED,
            "weighing": Weighing(rule="longest-hit", candidates=(score,), considered=2), **changes,
        }  # fmt: skip
        return DecisionRecord(**values)

    failed = Attempt(instance="b", failure="lost", after_seconds=0.25)
    decisions = (
        *(decision(number, 9 * (number % 4 == 0)) for number in range(100)),
        decision(100, 0, attempts=(failed,), ttft_seconds=9.0),
    )
    loads = tuple(a_load("a", int(at) - second, within_slo=0, **{**LATE, "tpot_total": 0}) for second in range(30))
    acknowledged = (Acknowledgement(pool=CHAT, version=1),)
    await api.router.post_report(a_report("r1", decisions=decisions, loads=loads, acknowledged=acknowledged))
    await api.app.state.upkeep.roll_up(api.clock())
    (found,) = [one for one in (await api.viewer.advice(CHAT)).items if one.cause is not Cause.SATURATED]
    assert (found.cause, found.level) == (Cause.PROMPTS_TOO_LONG, Level.BAD)
    assert "74.3 % of requests got their first token later than the TTFT target of 1 ms" in found.sentence
    assert found.plan == PlanRequest(kind=PlanKind.SLO, fields={"ttft": "50ms"})
    assert (await api.admin.create_plan(CHAT, found.plan)).state == PlanState.OPEN


async def test_a_hot_instance_can_be_drained_when_five_minutes_show_it(api: ApiInstance) -> None:
    api.clock.stop()
    api.clock.skip(30 - api.clock().timestamp() % 60)  # the seconds below lie in minutes of their own
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))

    async def minutes(count: int) -> None:
        for _ in range(count):
            second = int(api.clock().timestamp()) - 5
            counts: dict[str, Any] = {"requests": 40, "completed": 40, "judged_by_slo": 40, "ttft_total": 40}
            loads = (
                a_load("a", second, within_slo=4, ttft_within_slo=4, prompt_tokens=9000, **counts),
                a_load("b", second, within_slo=40, ttft_within_slo=40, prompt_tokens=1000, **counts),
            )
            await api.router.post_report(a_report(f"r{second}", at=api.clock().timestamp(), loads=loads))
            api.clock.skip(60)
        api.clock.skip(-55)
        await api.app.state.upkeep.roll_up(api.clock())

    async def hot() -> Advice:
        (found,) = [one for one in (await api.viewer.advice(CHAT)).items if one.cause is Cause.HOT_INSTANCE]
        return found

    await minutes(3)
    early = await hot()
    assert early.plan is None
    assert "only 3 minutes are on record" in early.sentence
    api.clock.skip(55)
    await minutes(3)
    found = await hot()
    assert found.plan is not None
    assert found.plan.kind is PlanKind.DRAIN


async def test_a_pool_that_is_well_has_none_and_one_that_is_not_there_is_not_found(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    await api.router.post_report(a_report("r1", acknowledged=(Acknowledgement(pool=CHAT, version=1),)))
    assert (await api.viewer.advice()).items == []
    with pytest.raises(ApiProblem, match="default/other"):
        await api.viewer.advice(PoolKey(namespace="default", name="other"))


async def test_silence_losses_and_conditions_are_told(api: ApiInstance) -> None:
    conditions = ({"type": "Degraded", "status": "True", "reason": "StrangePods", "message": "x is not an instance"},)
    for version, state in enumerate([InstanceState.SERVING, InstanceState.LOST] * 2 + [InstanceState.SERVING], 1):
        await api.pool_operator.put_pool_state(
            CHAT, a_state(an_instance("a", state), an_instance("b"), version=version, conditions=conditions)
        )
    found = {one.cause: one for one in (await api.viewer.advice()).items}
    assert found.keys() == {Cause.NO_ROUTER, Cause.INSTANCES_LOST, Cause.CONDITION_NOT_MET}
    assert found[Cause.INSTANCES_LOST].plan == PlanRequest(kind=PlanKind.DRAIN, instance="a")
    api.clock.skip(120)
    assert Cause.OPERATOR_SILENT in {one.cause for one in (await api.viewer.advice(CHAT)).items}


async def test_a_router_that_falls_silent_beside_another_is_told_until_it_reports_says_goodbye_or_is_forgotten(database_url: str) -> None:
    acknowledged = (Acknowledgement(pool=CHAT, version=1),)
    async with running_api(database_url, router_live_seconds=30) as api:

        async def report(router: str) -> None:
            work = (InstanceInFlight(pool=CHAT, instance="a", in_flight=3, waiting=1),)
            await api.router.post_report(
                a_report(f"{router}-{api.clock().timestamp()}", router, api.clock().timestamp(), acknowledged=acknowledged, in_flight=work)
            )

        async def silent_for(seconds: int) -> list[Advice]:
            with psycopg.connect(plain(database_url)) as connection:
                connection.execute("UPDATE routers SET first_seen_at = now() - interval '1 day' WHERE id <> 'router-2'")
                connection.execute("UPDATE routers SET last_seen_at = now() - %s * interval '1 second' WHERE id = 'router-1'", (seconds,))
            return [one for one in (await api.viewer.advice(CHAT)).items if one.cause is Cause.ROUTER_SILENT]

        await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a")))
        await report("router-0")
        await report("router-1")
        assert await silent_for(20) == []
        for seconds, words in ((45, "45 s"), (3500, "58 min")):
            (found,) = await silent_for(seconds)
            assert found.sentence.startswith(f"router-1 has not reported on default/chat for {words}")
            assert "with 3 requests in progress; 1 other router serves" in found.sentence
            assert found.level is Level.WARN
        assert await silent_for(3700) == [], "forgotten"
        await report("router-1")
        assert await silent_for(20) == [], "it reports"
        await report("router-2")
        (found,) = await silent_for(45)
        assert found.level is Level.NOTE, "another has joined since"
        await api.router.post_router_gone(RouterGone(router="router-1", at=api.clock().timestamp()))
        assert await silent_for(45) == [], "it said goodbye"


async def test_a_burning_budget_agrees_with_the_pools_slo_page(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    at = int((api.clock() - timedelta(minutes=2)).timestamp())
    cells = {cell_of(1.0, 0.05): 10, cell_of(6.0, 0.05): 90}
    counts: dict[str, Any] = {"judged": 100, "within_slo": 10, "ttft_within_slo": 10, "tpot_within_slo": 100, "tpot_total": 100}
    sample = SloSample(pool=CHAT, second=at, slo_version=1, cells=tuple(cells), counts=tuple(cells.values()), **counts)
    acknowledged = (Acknowledgement(pool=CHAT, version=1),)
    await api.router.post_report(a_report("r1", slo_samples=(sample,), acknowledged=acknowledged))
    await api.app.state.upkeep.roll_up(api.clock())
    (found,) = (await api.viewer.advice()).items
    burn = await api.viewer.slo_burn(CHAT)
    hour = next(one for one in burn.windows if one.window == "1h")
    assert found.cause is Cause.BUDGET_BURNS
    assert f"{hour.burn:.1f} times faster" in found.sentence


async def test_trends_tell_each_pool_step_by_step_and_the_fleet(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b", created_at=api.clock().timestamp())))
    at = int((api.clock() - timedelta(minutes=2)).timestamp())
    cells = {cell_of(1.0, 0.05): 95, cell_of(6.0, 0.05): 5}
    counts: dict[str, Any] = {"judged": 100, "within_slo": 95, "ttft_within_slo": 95, "refused": 7, "failed": 1}
    sample = SloSample(pool=CHAT, second=at, slo_version=1, cells=tuple(cells), counts=tuple(cells.values()), **counts)
    await api.router.post_report(a_report("r1", slo_samples=(sample,)))
    await api.app.state.upkeep.roll_up(api.clock())
    found = await api.viewer.trends(start="now-1h")
    (chat,) = found.pools
    assert (chat.pool, found.step_seconds, len(chat.judged)) == ("default/chat", 120, len(chat.ttft_seconds))
    for trend in (chat, found.fleet):
        assert (sum(trend.judged), sum(trend.in_time), sum(trend.refused), sum(trend.failed)) == (100, 95, 7, 1)
        figures = trend.figures
        assert (figures.judged, figures.in_time, figures.ttft_in_time, figures.refused, figures.failed) == (100, 95, 95, 7, 1)
    at_goal = chat.figures.ttft_seconds
    assert at_goal is not None and at_goal not in EDGES, "interpolated"
    assert at_goal == pytest.approx(1.0 + 0.1 * 90 / 95)
    assert [one for one in chat.ttft_seconds if one is not None] == [pytest.approx(at_goal)]
    assert chat.instance_hours == pytest.approx(1.0, abs=0.05)
    assert found.fleet.instance_hours == chat.instance_hours
    days = await api.viewer.trends(start="now-7d")
    assert (days.step_seconds, sum(days.fleet.judged)) == (5 * 3600, 100)
    for query in ({"start": "now-91d"}, {"start": "2999-01-01T00:00:00Z"}, {"start": "yesterday"}):
        with pytest.raises(ApiProblem, match="from"):
            await api.viewer.trends(**query)


async def test_the_ranks_of_an_engine_that_hang_are_named_while_no_router_finds_that_all_do(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))

    async def told(router: str, number: int, *ranks: int) -> str:
        trouble = TroubledEngine(pool=CHAT, instance="a", trouble=EngineTrouble.ENGINE_STALLED, words="it hangs", seconds=42.0, ranks=ranks)
        await api.router.post_report(a_report(f"{router}-{number}", router, troubled_engines=(trouble,)))
        assert [one.message for one in (await api.viewer.instance(CHAT, "a")).conditions] == ["it hangs"]
        (found,) = [one for one in (await api.viewer.advice(CHAT)).items if one.cause is Cause.ENGINE_STALLED]
        return found.sentence

    assert (await told("router-0", 1, 1)).startswith("Data-parallel rank 1 of a of default/chat has requests")
    assert (await told("router-1", 1, 0, 1)).startswith("Data-parallel ranks 0, 1 of a")
    assert (await told("router-1", 2)).startswith("The engine of a of default/chat has requests")


async def test_caches_that_moved_say_how_many_bytes_a_token_takes(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    bindings: list[BindingChange] = []
    migrations: list[MigrationRecord] = []
    for session, tokens, size in (("s1", 1_000, 131_072_000), ("s2", 3_000, 393_216_000), ("s3", 5_000, None)):
        cold = a_binding(session, "a", id=f"{session}-cold")
        moved = a_binding(session, "b", id=session, reason=BindingReason.SLO, previous="a", after=cold.id)
        bindings += [cold, moved]
        migrations.append(
            MigrationRecord(
                id=moved.id,
                pool=CHAT,
                session=session,
                request="q",
                source="a",
                target="b",
                trigger=moved.reason,
                at=moved.at,
                predicted_source_ttft_seconds=2.0,
                predicted_target_ttft_seconds=1.0,
                benefit_seconds=1.0,
                actual_ttft_seconds=0.5,
                tokens_moved=tokens,
                transfer_bytes=size,
            )
        )
    await api.router.post_report(a_report("r1", bindings=tuple(bindings), migrations=tuple(migrations)))
    found = (await api.app.state.sizing._reader.situations(CHAT, api.clock())).pools[0].moves
    assert (found.known, found.bytes_per_token) == (3, 131_072.0)


def recommending(api: ApiInstance, replicas: int, version: int, current: int = 2) -> PoolState:
    """Return a pool in mode Advise whose operator recommends a number of instances."""
    spec = {**SPEC, "scaling": {"mode": "Advise"}}
    decision = ScalingDecisionRecord(
        id=f"d{version}",
        at=api.clock().timestamp(),
        controller=Controller.SCALING,
        role=Role.BOTH,
        mode="Advise",
        current=current,
        replicas=replicas,
        recommended=replicas,
        verdict=Verdict.ADVISED,
        cause=ScalingCause.PROMPTS,
        lower=1,
        upper=10,
        reason=f"it needs {replicas}",
    )
    state = a_state(an_instance("a"), an_instance("b"), version=version, spec=spec, desired={"both": current})
    return replace(state, scaling_decisions=(decision,))


async def test_what_the_operator_advises_waits_as_a_plan_until_somebody_applies_it(api: ApiInstance, cluster: FakeClusterGateway) -> None:
    await api.admin.create_webhook(WebhookRequest(name="owners", url="https://hooks.example.com/x", kinds=(NoticeKind.PLAN_PROPOSED,)))
    await api.pool_operator.put_pool_state(CHAT, recommending(api, 5, 1))
    for _ in range(3):
        await api.app.state.proposing.look(api.clock())
    (plan,) = (await api.viewer.plans({"created_by": PROPOSER})).items
    assert (plan.kind, plan.state, plan.expires_at - plan.created_at) == (PlanKind.SCALE, PlanState.OPEN, timedelta(days=1))
    assert plan.proposal is not None and "it needs 5" in plan.proposal.because
    assert [(step["path"], step["before"], step["after"]) for step in plan.diff] == [("/spec/replicas", 2, 5)]
    assert "replicas: 5" in plan.patch, "to commit it in Git"
    assert [one.subject for one in (await api.viewer.notices()).items] == [plan.id]
    assert cluster.spec(CHAT)["replicas"] == 2, "nothing is applied on its own"
    applied = await api.operator.apply_plan(plan.id, ApplyRequest(reason="yes"))
    assert (applied.state, applied.applied_by, cluster.spec(CHAT)["replicas"]) == (PlanState.APPLIED, "test-operator", 5)
    assert [one.kind for one in (await api.viewer.audit({"action": "plan.proposed"})).items] == [AuditKind.SYSTEM]


async def test_a_proposal_is_withdrawn_with_its_advice_or_for_another_one(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, recommending(api, 5, 1))
    await api.app.state.proposing.look(api.clock())
    api.clock.skip(60)
    await api.pool_operator.put_pool_state(CHAT, recommending(api, 4, 2))
    await api.app.state.proposing.look(api.clock())
    found = (await api.viewer.plans({"created_by": PROPOSER})).items
    assert [(one.state, one.diff[0]["after"]) for one in found] == [(PlanState.OPEN, 4), (PlanState.SUPERSEDED, 5)]
    api.clock.skip(3700)
    await api.app.state.proposing.look(api.clock())
    assert {one.state for one in (await api.viewer.plans({"created_by": PROPOSER})).items} == {PlanState.SUPERSEDED}


async def test_what_became_of_the_requests_is_beside_an_applied_plan(api: ApiInstance) -> None:
    await overload(api)
    plan = await api.operator.create_scale_plan(CHAT, 5)
    assert (await api.viewer.plan_hand_over(plan.id)).attainment_before is None
    await api.operator.apply_plan(plan.id, ApplyRequest(reason="late"))
    found = await api.viewer.plan_hand_over(plan.id)
    assert (found.attainment_before, found.attainment_after) == (0.0, None)
