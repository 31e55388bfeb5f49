"""Planning another number of replicas and applying it: a plan's promises, and the cases in which the server refuses
it.
"""

import re
from dataclasses import replace
from datetime import timedelta
from html import escape

import pytest

from fairlead_client.resources.access import AccessRole, Identity
from fairlead_client.resources.expectations import ExpectationState, ExpectedFigure, PlanExpectation, Quantity
from fairlead_client.resources.plan_kinds import PlanKind
from fairlead_client.resources.plans import HandOverForecast, PlanState
from fairlead_testing.fakes.public_data.loads import CHAT, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.drawing.differences import changes_of
from fairlead_web.text.addresses import session_path
from fairlead_web.text.formats import told


async def test_a_plan_that_no_longer_fits_shows_who_changed_the_pool_and_keeps_the_form() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="10")
        operator.fake.book.plans["p-0001"] = replace(operator.fake.book.plans["p-0001"], state=PlanState.SUPERSEDED)
        answer = await operator.submit("/plans/p-0001/apply", reason="my reason")
        assert answer.status_code == 409
        assert "changed by grace at 10:04" in answer.text
        assert "Nothing was applied by this attempt." in answer.text
        assert "Changed since it was planned" in answer.text
        assert "<strong>grace</strong>" in answer.text
        assert ": cheaper" in answer.text
        assert ">Plan it again</button>" in answer.text
        assert operator.fake.book.applied == []


async def test_a_pool_changed_meanwhile_shows_both_changes_and_a_way_to_plan_again() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="10")
        world = operator.fake.world
        diff = [{"op": "replace", "path": "/slo/ttft", "before": "5s", "after": "4s"}]
        spec = {**world.spec(CHAT), "slo": {"ttft": "4s"}}
        later = replace(world.revisions(CHAT)[0], number=5, at=world.now + timedelta(seconds=30), actor="grace", diff=diff, spec=spec)
        world.extra_revisions.append(later)
        page = (await operator.http.get("/plans/p-0001")).text
        assert "Changed since it was planned" in page
        assert "grace" in page
        assert "slo.ttft" in page
        assert ">outdated</span>" in page
        assert ">Apply</button>" not in page
        assert ">Plan it again</button>" in page
        again = await operator.submit("/plans/p-0001/again")
        assert again.headers["location"] == "/plans/p-0002"


async def test_a_plan_to_zero_says_that_sessions_are_lost() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="0")
        page = (await operator.http.get("/plans/p-0001")).text
        assert "Sessions lost" in page
        assert "Sessions moved" not in page


async def test_a_remedy_is_said_once() -> None:
    async with visitor() as operator:
        answer = await operator.submit("/pools/default/chat/plans", replicas="65")
        assert answer.text.count("lower replicas or raise maxReplicas") == 1
    assert told("cursor: 'x' cannot be used; write what next_cursor said", "write what next_cursor said") == (
        "cursor: 'x' cannot be used; write what next_cursor said."
    )
    assert told("It failed", "Try again") == "It failed. Try again."


async def test_a_heavy_plan_without_its_name_is_refused_by_the_server_too() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="0")
        answer = await operator.submit("/plans/p-0001/apply", confirm="wrong", reason="because")
        assert answer.status_code == 422
        assert 'value="wrong"' in answer.text
        assert 'value="because"' in answer.text
        assert operator.fake.book.applied == []


@pytest.mark.parametrize("given", ["", "eight", "-1", "1.5", "٣", "999999999999"])
async def test_a_number_of_replicas_that_is_none_is_explained(given: str) -> None:
    async with visitor() as operator:
        answer = await operator.submit("/pools/default/chat/plans", replicas=given)
        assert answer.status_code == 422
        assert "write a whole number such as 8" in answer.text
        assert operator.fake.book.plans == {}


async def test_a_viewer_who_posts_anyway_is_refused_by_the_api_and_told_why() -> None:
    async with visitor("viewer") as viewer:
        answer = await viewer.submit("/pools/default/chat/plans", replicas="9")
        assert answer.status_code == 403
        assert "needs the role operator" in answer.text
        assert viewer.fake.book.plans == {}


async def test_a_refused_form_stays_open_with_what_was_typed_and_the_others_are_closed() -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit("/pools/default/chat/plans", kind="slo", ttft="soon", tpot="90ms", percentile="95")
        assert answer.status_code == 422
        assert 'id="change-slo" open' in answer.text
        assert 'id="change-scale">' in answer.text
        assert 'name="ttft" value="soon"' in answer.text
        assert 'name="tpot" value="90ms"' in answer.text
        assert "write a duration with a unit" in answer.text
        number = await admin.submit("/pools/default/chat/plans", kind="ring", anchorsPerInstance="many")
        assert "write a number such as 160" in number.text
        none = await admin.submit("/pools/default/chat/plans", kind="early-rejection", headroom="nan")
        assert "Headroom: &#39;nan&#39; cannot be used" in none.text
        parameters = await admin.submit("/pools/default/chat/plans", kind="policy", policy="dualmap", parameters="candidates: [3")
        assert "write one `name: value` per line" in parameters.text
        assert "candidates: [3" in parameters.text
        assert admin.fake.book.plans == {}


async def test_parts_of_the_spec_are_planned_from_their_forms() -> None:
    async with visitor("admin") as admin:
        sent = {"kind": "policy", "policy": "sticky", "parameters": ""}
        answer = await admin.submit("/pools/default/chat/plans", **sent)
        assert answer.headers["location"] == "/plans/p-0001"
        page = (await admin.http.get("/plans/p-0001")).text
        assert "spec.routing.policy" in page
        assert "spec.routing.parameters.slo_fraction" in page
        await admin.submit("/plans/p-0001/apply")
        assert admin.fake.world.spec(CHAT)["routing"]["policy"] == "sticky"


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "scale", "replicas": "9" * 5000},
        {"kind": "rollback", "revision": "9" * 5000},
        {"kind": "early-rejection", "mode": "Enabled", "headroom": "9" * 5000},
        {"kind": "policy", "policy": "ear", "parameters": "&a {b: *a}"},
        {"kind": "policy", "policy": "ear", "parameters": "a: " + "[" * 3000},
        {"kind": "policy", "policy": "ear", "parameters": "a: 2026-02-30"},
    ],
)
async def test_odd_text_in_a_form_of_the_pool_is_refused_beside_it(fields: dict[str, str]) -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit("/pools/default/chat/plans", **fields)
        assert (answer.status_code, "cannot be used" in answer.text) == (422, True)


@pytest.mark.parametrize("revision", ["9" * 5000, "²", ""])
async def test_there_is_no_way_back_to_what_is_no_revision(revision: str) -> None:
    async with visitor("admin") as admin:
        assert (await admin.submit("/pools/default/chat/spec/plans", revision=revision)).status_code == 404


async def test_an_operator_sees_forms_of_admins_disabled_with_the_reason() -> None:
    async with visitor("operator") as operator:
        page = (await operator.http.get("/pools/default/chat")).text
        assert page.count("This needs the role admin; you are") == 12
        operator.fake.book.plan(CHAT, PlanKind.SLO, {"slo": {"ttft": "3s"}}, "ada")
        plan = (await operator.http.get("/plans/p-0001")).text
        assert "Applying needs the role admin" in plan
        assert (await operator.submit("/pools/default/chat/plans", kind="slo", ttft="3s")).status_code == 403


async def test_who_has_rights_in_a_namespace_is_told_them_there_and_where_they_hold_elsewhere() -> None:
    async with visitor("lead") as lead:
        lead.fake.tokens["lead-token"] = Identity(
            subject="ada", role=AccessRole.VIEWER, source="oidc", expires_at=None, namespaces={"default": AccessRole.OPERATOR}
        )
        for path, needed, told in (
            ("/pools/default/chat", "admin", "operator"),
            ("/pools/research/code", "operator", "viewer"),
            ("/pause-migrations", "operator", "viewer, operator in default"),
        ):
            page = (await lead.http.get(path)).text
            assert f"This needs the role {needed}; you are {told}." in " ".join(page.split())
            assert '<span class="badge plain">operator in default</span>' in page.split('class="menu user"')[1].split("</details>")[0]


async def test_an_instance_is_cordoned_from_its_page() -> None:
    async with visitor("operator") as operator:
        name = INSTANCES[CHAT][0]
        path = f"/pools/default/chat/instances/{name}"
        assert "Cordon…" in (await operator.http.get(path)).text
        answer = await operator.submit(f"{path}/plans", page=path, kind="cordon")
        assert answer.headers["location"] == "/plans/p-0001"
        page = (await operator.http.get("/plans/p-0001")).text
        assert "metadata.annotations.fairlead.dev/cordoned" in page
        assert "It is not replaced while it is cordoned" in page
        assert (await operator.submit(f"{path}/plans", page=path, kind="slo")).status_code == 404


async def test_an_instance_is_drained_from_its_page_and_the_drain_is_taken_back() -> None:
    async with visitor("operator") as operator:
        name = INSTANCES[CHAT][0]
        path = f"/pools/default/chat/instances/{name}"
        assert "Drain and replace…" in (await operator.http.get(path)).text
        await operator.submit(f"{path}/plans", page=path, kind="drain")
        page = (await operator.http.get("/plans/p-0001")).text
        assert "metadata.annotations.fairlead.dev/drain" in page
        assert "serve until its successor serves" in page
        await operator.submit("/plans/p-0001/apply", reason="bad GPU")
        assert operator.fake.world.annotations(name) == {"fairlead.dev/drain": "true"}
        answer = await operator.submit(f"{path}/plans", page=path, kind="undrain")
        assert answer.headers["location"] == "/plans/p-0002"


async def test_a_revision_is_gone_back_to_from_the_pools_page() -> None:
    async with visitor("operator") as operator:
        page = (await operator.http.get("/pools/default/chat")).text
        assert "6 of 8 instances have the current" in " ".join(page.split())
        assert page.count("Roll back…") == 1, "the one in force has no button"
        answer = await operator.submit("/pools/default/chat/plans", kind="rollback", revision="1")
        assert answer.headers["location"] == "/plans/p-0001"
        plan = (await operator.http.get("/plans/p-0001")).text
        assert "engine.prefillTokensPerSecond" in plan
        assert "Instances replaced" in plan
        refused = await operator.submit("/pools/default/chat/plans", kind="rollback", revision="7")
        assert refused.status_code == 422
        assert "the pool&#39;s revisions are: 2, 1" in refused.text


async def test_a_rollout_is_paused_by_its_form() -> None:
    async with visitor("operator") as operator:
        fields = {"kind": "rollout", "paused": "true", "maxSurge": "1", "maxUnavailable": "0"}
        assert (await operator.submit("/pools/default/chat/plans", **fields)).status_code == 303
        assert "rollout.paused" in (await operator.http.get("/plans/p-0001")).text


async def test_a_pair_of_roles_has_a_form_each_and_its_ratio() -> None:
    async with visitor("operator") as operator:
        roles = [
            {"name": "prefill", "replicas": 5, "minReplicas": 1, "maxReplicas": 8},
            {"name": "decode", "minReplicas": 2, "maxReplicas": 8},
        ]
        operator.fake.world.spec_changes[CHAT] = {"replicas": 1, "roles": roles}
        operator.fake.world.roles_wanted[CHAT] = {"decode": 3, "prefill": 7}
        page = (await operator.http.get("/pools/default/chat")).text
        assert "Prefill to decode: 7 : 3 wanted, 6 : 0 serving." in page
        assert "5 declared, 7 desired now" in page
        assert re.findall(r'name="replicas"[^>]*value="(\d+)"', page) == ["5", "3"], (
            "a plan changes the declared number, whatever a window wants"
        )
        assert "Bounds of prefill" in page
        assert "Scale prefill" in page
        assert "How an instance changes its role" in page
        answer = await operator.submit("/pools/default/chat/plans", kind="scale", role="decode", replicas="9")
        assert 'id="scale-decode-problem"' in answer.text
        assert 'id="scale-prefill-problem"' not in answer.text
        assert (await operator.submit("/pools/default/chat/plans", kind="scale", role="decode", replicas="4")).status_code == 303


async def test_what_becomes_of_an_idle_pool_is_planned_from_the_form_of_scaling() -> None:
    async with visitor("admin") as admin:
        page = (await admin.http.get("/pools/default/chat")).text
        assert 'name="zero.holdFor" value="2m"' in page
        sent = {"kind": "scaling", "mode": "Fixed", "targetLoad": "0.8", "zero.idleAfter": "10m", "zero.heldRequests": "64"}
        assert (await admin.submit("/pools/default/chat/plans", **sent, **{"zero.holdFor": "5m"})).status_code == 303
        plan = (await admin.http.get("/plans/p-0001")).text
        assert [path in plan for path in ("scaling.zero.holdFor", "scaling.zero.heldRequests", "scaling.zero.idleAfter")] == [
            True,
            True,
            False,
        ]
        refused = await admin.submit("/pools/default/chat/plans", **sent, **{"zero.holdFor": "long"})
        assert refused.status_code == 422
        assert "Hold a request for: &#39;long&#39; cannot be used" in refused.text
        assert 'name="zero.holdFor" value="long"' in refused.text


async def test_a_number_that_stays_as_it_was_is_no_change() -> None:
    async with visitor("admin") as admin:
        page = (await admin.http.get("/pools/default/chat")).text
        assert 'name="headroom" type="number" inputmode="decimal" min="0" step="any"\nvalue="1.0"' in page
        await admin.submit("/pools/default/chat/plans", kind="early-rejection", mode="Predicted", headroom="1.0")
        assert "earlyRejection.headroom" not in (await admin.http.get("/plans/p-0001")).text


async def test_what_a_plan_means_is_no_warning_and_what_it_costs_is_one() -> None:
    async with visitor("admin") as admin:
        admin.fake.book.plan(CHAT, PlanKind.SCALING, {"scaling": {"mode": "Advise"}}, "ada")
        admin.fake.book.plan(CHAT, PlanKind.RING, {"routing": {"anchorsPerInstance": 64}}, "ada")
        meant, costly = [(await admin.http.get(f"/plans/{name}")).text for name in ("p-0001", "p-0002")]
    assert '<p class="notice">Numbers stay as declared' in meant
    assert "notice warn" not in meant
    assert '<p class="notice warn">About 18 of 96 sessions move' in costly


async def test_a_refused_plans_address_can_be_opened_again() -> None:
    async with visitor() as operator:
        operator.fake.book.make(CHAT, 10, "ada")
        operator.fake.book.plans["p-0001"] = replace(operator.fake.book.plans["p-0001"], state=PlanState.SUPERSEDED)
        for address in ("/plans/p-0001/apply", "/plans/p-0001/undo"):
            assert (await operator.submit(address)).status_code == 409
            again = await operator.http.get(address)
            assert (again.status_code, "The pool changed after this was planned" in again.text) == (200, True)


async def test_a_refused_forms_address_can_be_reloaded_and_its_field_has_the_focus() -> None:
    async with visitor("admin") as admin:
        refused = await admin.submit("/pools/default/chat/plans", replicas="many")
        assert refused.status_code == 422
        assert refused.text.count(" autofocus") == 1
        assert (await admin.http.get("/pools/default/chat/plans")).status_code == 200


def test_a_plan_tells_lists_as_yaml() -> None:
    [change] = changes_of([{"path": "/spec/scaling/schedules", "before": None, "after": [{"name": "night", "paused": False}]}])
    assert (change.before, change.after) == ("none", "- name: night\n  paused: false")


async def test_a_session_is_moved_and_unpinned_from_its_page() -> None:
    async with visitor("operator") as operator:
        one = next(item for item in operator.fake.world.sessions() if item.pool == CHAT and item.instance)
        page = (await operator.http.get(session_path(CHAT, one.session))).text
        assert f' value="{one.instance}">' not in page, "it lives there already"
        target = next(name for name in INSTANCES[CHAT] if f' value="{name}">' in page)
        moved = await operator.submit(f"{session_path(CHAT, one.session)}/plans", kind="move", instance=target)
        plan = (await operator.http.get(moved.headers["location"])).text
        assert escape(one.session) in plan
        assert target in plan
        freed = await operator.submit(f"{session_path(CHAT, one.session)}/plans", kind="unpin")
        assert freed.headers["location"].startswith("/plans/")
        refused = await operator.submit(f"{session_path(CHAT, one.session)}/plans", kind="move", instance="")
        assert refused.status_code == 422
        again = await operator.http.get(f"{session_path(CHAT, one.session)}/plans")
        assert (again.status_code, escape(one.session) in again.text) == (200, True), "its address can be loaded again"
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(session_path(CHAT, one.session))).text
        assert "This needs the role operator; you are viewer" in " ".join(page.split())


async def test_a_pool_is_deleted_by_its_form_with_name_and_reason() -> None:
    async with visitor("admin") as admin:
        answer = await admin.submit("/pools/default/chat/plans", kind="delete")
        page = (await admin.http.get(answer.headers["location"])).text
        assert "Sessions lost" in page
        assert "This is a high-impact change" in page


async def test_a_revision_of_the_spec_is_gone_back_to_in_four_clicks_from_the_overview() -> None:
    async with visitor("admin") as admin:
        for page, link in (("/", "/pools/default/chat"), ("/pools/default/chat", "/pools/default/chat/spec")):
            assert f'href="{link}"' in (await admin.http.get(page)).text
        assert 'aria-label="Roll back to revision 2"' in (await admin.http.get("/pools/default/chat/spec")).text
        planned = await admin.submit("/pools/default/chat/spec/plans", revision="2")
        assert planned.headers["location"] == "/plans/p-0001"
        assert "spec.routing.policy" in (await admin.http.get("/plans/p-0001")).text
        applied = await admin.submit("/plans/p-0001/apply")
        assert applied.status_code == 303
        assert admin.fake.world.spec(CHAT)["routing"]["policy"] == "ear"
        refused = await admin.submit("/pools/default/chat/spec/plans", revision="2")
        assert (refused.status_code, "the spec already has these values" in refused.text) == (422, True)
    async with visitor("operator") as operator:
        page = (await operator.http.get("/pools/default/chat/spec")).text
        assert "Roll back…" not in page
        assert "Rolling back needs the role admin" in page


async def test_the_plan_that_was_applied_last_is_undone_from_the_overview_while_it_can_be() -> None:
    async with visitor() as operator:
        assert "Undo the last change" not in (await operator.http.get("/")).text, "that plan is no longer kept"
        await operator.submit("/pools/default/chat/plans", replicas="10")
        await operator.submit("/plans/p-0001/apply", reason="more")
        newest = operator.fake.world.audit()[0].plan
        assert newest is not None
        plans = operator.fake.book.plans
        plans[newest] = replace(plans["p-0001"], id=newest)
        page = (await operator.http.get("/")).text
        assert f'formaction="/plans/{newest}/undo"' in page
        assert page.count("Undo the last change") == 1
        plans[newest] = replace(plans[newest], state=PlanState.UNDONE)
        assert "Undo the last change" not in (await operator.http.get("/")).text


async def test_a_plan_shows_that_it_is_being_simulated_and_then_what_is_expected_or_why_that_cannot_be_known() -> None:
    async with visitor() as operator:
        await operator.submit("/pools/default/chat/plans", replicas="10")
        none = (await operator.http.get("/plans/p-0001")).text
        assert "Not simulated: 12 requests were recorded in the hour until 10:20 UTC, and 200 are needed." in none
        book, now = operator.fake.book, operator.fake.world.now
        at_work = PlanExpectation(plan="p-0001", state=ExpectationState.RUNNING, done=100, total=4000)
        book.expectations["p-0001"] = at_work
        page = (await operator.http.get("/plans/p-0001")).text
        assert "Simulating" in page
        assert "100 of 4,000 requests" in page
        assert 'id="expectation-look"' in page
        part = (await operator.http.get("/plans/p-0001", headers={"Fairlead-Regions": "expectation", "hx-request": "true"})).text
        assert "Simulating" in part
        assert "What changes" not in part
        book.expectations["p-0001"] = replace(
            at_work,
            state=ExpectationState.DONE,
            start=now - timedelta(hours=1),
            end=now,
            requests=1000,
            measured_seconds=1800.0,
            seeds=[0, 1],
            rates=[0.8, 1.25],
            figures=[
                ExpectedFigure(quantity=Quantity.ATTAINMENT, before=0.8, after=0.95),
                ExpectedFigure(quantity=Quantity.HIT_RATE, before=0.5, after=0.4, unknown="the simulated pool is not like this one"),
                ExpectedFigure(quantity=Quantity.SESSIONS_MOVED, before=2.0, after=41.6),
            ],
        )
        done = (await operator.http.get("/plans/p-0001")).text
        assert "expectation-look" not in done
        assert all(words in done for words in ("80.0 %", "95.0 %", "Sessions that move", "42", "seeds 0 and 1"))
        assert "seeds 0 and 1; with this plan also at 0.8 and 1.25 times the rate." in " ".join(done.split())
        assert "Cannot be known" in done
        assert "the simulated pool is not like this one" in done
        assert "In time after, simulated" in done


async def test_no_estimate_stands_beside_a_simulation_that_may_contradict_it() -> None:
    async with visitor("admin") as admin:
        book = admin.fake.book
        await admin.submit("/pools/default/chat/plans", replicas="10")
        book.plans["p-0001"] = replace(book.plans["p-0001"], effect=replace(book.plans["p-0001"].effect, predicted_attainment=0.999))
        figure = ExpectedFigure(quantity=Quantity.ATTAINMENT, before=0.4, after=0.436, unknown="the simulated pool is not like this one")
        at = book.plans["p-0001"].created_at
        done = PlanExpectation(plan="p-0001", state=ExpectationState.DONE, start=at, end=at, requests=1000, measured_seconds=1.0)
        for expectation in (PlanExpectation(plan="p-0001", state=ExpectationState.QUEUED), replace(done, figures=[figure])):
            book.expectations["p-0001"] = expectation
            page = (await admin.http.get("/plans/p-0001")).text
            assert "99.9" not in page
            assert "In time after" not in page
        book.expectations["p-0001"] = replace(done, figures=[replace(figure, unknown=None)])
        known = (await admin.http.get("/plans/p-0001")).text
        assert "In time after, simulated" in known and "43.6 %" in known and "99.9" not in known


async def test_a_plan_says_what_is_kept_of_caches_and_an_applied_one_what_was() -> None:
    async with visitor("admin") as admin:
        await admin.submit("/pools/default/chat/plans", replicas="7")
        book = admin.fake.book
        plan = book.plans["p-0001"]
        for forecast, words in (
            (HandOverForecast(hits_kept=0.931, seconds_longer=40.0, more_work=0.021), ("93.1 %", "40.0 s longer, 2.1 % more work")),
            (
                HandOverForecast(unknown="no session had a turn in the last five minutes"),
                ("not known", "no session had a turn in the last"),
            ),
        ):
            book.plans["p-0001"] = replace(plan, effect=replace(plan.effect, hand_over=forecast))
            page = (await admin.http.get("/plans/p-0001")).text
            assert all(one in page for one in ("Hits kept", *words))
            assert "What sessions kept" not in page
        at = plan.created_at
        book.plans["p-0001"] = replace(book.plans["p-0001"], applied_at=at, applied_by="ada", state=PlanState.APPLIED)
        assert "What sessions kept" in (await admin.http.get("/plans/p-0001")).text


async def test_the_numbers_of_a_report_from_before_an_applied_plan_are_not_shown() -> None:
    async with visitor("admin") as admin:
        await admin.submit("/pools/default/chat/plans", replicas="10")
        await admin.submit("/plans/p-0001/apply", reason="more")
        del admin.fake.world.reported[CHAT]
        page = (await admin.http.get("/plans/p-0001")).text
    assert "The operator has not reported the pool since." in page
    assert 'aria-label="Instances serving"' not in page


async def test_an_applied_plan_says_how_far_it_is_and_a_plan_marks_the_tab_of_what_it_changes() -> None:
    async with visitor("admin") as admin:
        await admin.submit("/pools/default/chat/plans", replicas="10")
        before = (await admin.http.get("/plans/p-0001")).text
        await admin.submit("/plans/p-0001/apply", reason="more")
        after = " ".join((await admin.http.get("/plans/p-0001")).text.split())
        admin.fake.book.plan(CHAT, PlanKind.SLO, {"slo": {"ttft": "3s"}}, "ada")
        slo = (await admin.http.get("/plans/p-0002")).text
    assert 'aria-label="Instances serving"' not in before
    assert re.search(r'<progress max="10" value="6" aria-label="Instances serving"></progress> <strong>6 of 10</strong>', after)
    assert 'data-live-refresh="state membership"' in after
    assert re.search(r'href="/pools/default/chat/slo"\s+aria-current="page"', slo)
