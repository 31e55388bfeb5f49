"""Pages that explain a decision, a migration, a session and an instance."""

from dataclasses import replace
from datetime import timedelta

from fairlead.reports.bindings import BindingReason
from fairlead.reports.moves import MoveOutcome
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES
from fairlead_testing.running.web_client import visitor
from fairlead_web.text.addresses import session_path


def flat(page: str) -> str:
    return " ".join(page.split())


async def test_a_decision_shows_its_margin_its_sum_and_no_remark_on_a_good_prediction() -> None:
    async with visitor() as one:
        page = flat((await one.http.get("/decisions/d-0002")).text)
        assert "Margin in cost" in page
        assert "lower is better" in page
        assert " cost." in page
        assert "The prediction was bad" not in page
        assert "contradicts itself" not in page


async def test_a_bad_prediction_and_a_record_that_contradicts_itself_are_said_to_be_so() -> None:
    async with visitor() as one:
        known = one.fake.world.decisions()[0]
        predicted = known.candidates[0].predicted_ttft_seconds
        bad = replace(known, id="bad", ttft_seconds=predicted + 60.0)
        worse = replace(known.candidates[0], instance=known.candidates[1].instance)
        turned = replace(bad, id="turned", candidates=[replace(known.candidates[1], instance=known.chosen), worse])
        one.fake.world.extra_decisions += [bad, turned]
        page = flat((await one.http.get("/decisions/bad")).text)
        assert "The prediction was bad" in page
        assert f'href="/pools/{known.pool}/predictor"' in page
        page = flat((await one.http.get("/decisions/turned")).text)
        assert "The record contradicts itself: according to rule lowest-cost," in page
        assert "Behind in cost" in page


async def test_a_decision_leads_to_the_move_that_its_request_carried_and_back() -> None:
    async with visitor() as one:
        decision = one.fake.world.decisions()[0]
        move = one.fake.world.migrations()[1]
        carried = replace(
            move,
            id="m-mine",
            pool=decision.pool,
            session=decision.session or "",
            request=decision.request,
            source=decision.runner_up or "",
            target=decision.chosen,
            at=decision.at,
        )
        one.fake.world.extra_migrations.append(carried)
        page = (await one.http.get(f"/decisions/{decision.id}")).text
        assert '<a href="/migrations/m-mine">' in page
        back = (await one.http.get("/migrations/m-mine")).text
        assert f'<a href="/decisions/{decision.id}">' in back


async def test_a_move_of_a_queued_request_leads_to_the_decision_for_the_instance_that_it_left() -> None:
    async with visitor() as one:
        decision = one.fake.world.decisions()[0]
        move = one.fake.world.migrations()[1]
        carried = replace(
            move,
            id="m-queued",
            pool=decision.pool,
            session=decision.session or "",
            request=decision.request,
            source=decision.chosen,
            target=decision.runner_up or "",
            at=decision.at + timedelta(seconds=2),
        )
        one.fake.world.extra_migrations.append(carried)
        page = flat((await one.http.get("/migrations/m-queued")).text)
        assert f'<a href="/decisions/{decision.id}">' in page
        assert "not in the recorded sample" not in page


async def test_a_migration_has_its_net_effect_and_its_steps_and_a_re_route_has_none() -> None:
    async with visitor() as one:
        page = flat((await one.http.get("/migrations/m-0003")).text)
        assert "Was it faster than staying?" in page
        assert " saved" in page
        assert [name for name in ("Plan", "Transfer", "Cutover", "Release") if f"<h3>{name}</h3>" in page] == [
            "Plan",
            "Transfer",
            "Cutover",
            "Release",
        ]
        assert "<h3>Cutover</h3>" not in (await one.http.get("/reroutes/q-0003")).text


async def test_a_move_whose_session_is_forgotten_has_steps_that_are_not_recorded() -> None:
    async with visitor() as one:
        move = replace(one.fake.world.migrations()[1], id="m-old", session="forgotten", request=None, trigger=BindingReason.OPERATOR)
        one.fake.world.extra_migrations.append(move)
        page = flat((await one.http.get("/migrations/m-old")).text)
        assert page.count("does not reach back so far") == 2
        assert 'href="/plans/m-old"' in page
        assert "did not answer" not in page, "a session that is forgotten is not a failure of a source"


async def test_moves_say_what_they_came_to_and_lead_to_those_that_did_not_pay_off() -> None:
    async with visitor() as one:
        moves = [move for move in one.fake.world.migrations() if move.pool == CODE]
        page = flat((await one.http.get("/migrations?pool=research/code")).text)
        lost = sum(move.paid_off is False for move in moves)
        assert f'<a href="/migrations?pool=research%2Fcode&amp;paid_off=false">{lost}</a>' in page
        assert "From → to" in page
        fleet = flat((await one.http.get("/migrations")).text)
        assert "From → to" not in fleet.split("Most frequent moves")[0], "two pools have no moves between them"
        assert "Most frequent moves" in fleet


async def test_a_move_that_came_sooner_without_being_predicted_to_is_not_called_unknown() -> None:
    async with visitor() as one:
        known = next(move for move in one.fake.world.migrations() if move.pool == CODE and move.paid_off)
        won = replace(known, id="m-won", benefit_seconds=-0.5, paid_off=None)
        still = replace(won, id="m-still", actual_ttft_seconds=None, outcome=MoveOutcome.UNDERWAY)
        one.fake.world.extra_migrations += [won, still]
        rows = {row.partition('"')[0]: flat(row) for row in (await one.http.get("/migrations")).text.split('<tr data-key="')}
        paid = '<td data-label="Faster than staying"><span class="muted">'
        assert f"{paid}yes, not predicted</span>" in rows["m-won"]
        assert f"{paid}not known</span>" in rows["m-still"]


async def test_a_sessions_homes_are_told_in_a_sentence() -> None:
    async with visitor() as one:
        moved = next(session for session in one.fake.world.sessions() if session.version == 3 and session.instance)
        page = flat((await one.http.get(session_path(moved.pool, moved.session))).text)
        assert "3 instances held it within" in page
        assert "It moved 2 times" in page


async def test_an_instance_ranks_its_sessions_and_says_why_it_is_loaded() -> None:
    async with visitor() as one:
        name = INSTANCES[CHAT][2]
        page = flat((await one.http.get(f"/pools/default/chat/instances/{name}")).text)
        largest = one.fake.world.held(CHAT, name).top[0]
        assert f'title="{largest.session}"' in page.split("Sessions by tokens held")[1]
        assert f"{largest.context_tokens:,}" in page
        assert "Sessions by prefilled tokens" in page
        assert "the median of the" in page.split("Why this load?")[1]


async def test_the_overview_counts_re_routes_apart_and_says_whether_a_move_paid_off() -> None:
    async with visitor() as one:
        page = flat((await one.http.get("/")).text)
        assert "Sessions moved" in page
        assert "requests re-routed" in page
        assert "faster than staying" in page
