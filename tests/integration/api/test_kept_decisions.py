"""Decisions that are kept or not, and sessions with all decisions kept, on a real database."""

from typing import Any

import psycopg
import pytest

from fairlead.reports.decisions import Attempt, DecisionReason, DecisionRecord, KeptFor, RequestOutcome, Weighing
from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.weighing import NOBODY, NOT_WEIGHED
from fairlead_api.decisions import routes
from fairlead_client.lines import KeptSessionsLine
from fairlead_client.problems import ApiProblem
from fairlead_client.resources.gateway_keys import GatewayKeyChange, GatewayKeyRequest
from fairlead_client.resources.sessions import KeepSessionRequest
from fairlead_testing.running.api import CHAT, ApiInstance, a_report, a_state, an_instance
from fairlead_testing.running.postgres import plain
from fairlead_testing.running.seams import following

TRACE = "4b" * 16


def a_decision(name: str, at: float, **changes: Any) -> DecisionRecord:
    rule = NOT_WEIGHED if changes.get("chosen", "host-a") else NOBODY
    values: dict[str, Any] = {
        "id": name, "pool": CHAT, "request": f"router-{name}", "session": None, "at": at, "policy": "fairlead", "table_version": 1,
        "chosen": "host-a", "runner_up": None, "reason": DecisionReason.SESSION_COLD, "prompt_tokens": 10,
        "weighing": Weighing(rule=rule, candidates=(), considered=0), **changes,
    }  # fmt: skip
    return DecisionRecord(**values)


async def test_a_kept_decision_tells_how_its_request_went_and_is_found_by_any_of_its_ids(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("host-a")))
    now = api.clock().timestamp()
    retried = a_decision(
        "a" * 32, now - 1, kept=KeptFor.RETRIED, outcome=RequestOutcome.SERVED, served_by="host-b", client_request="order-4711", trace=TRACE,
        attempts=(Attempt(instance="host-a", failure="lost", after_seconds=0.25),), ttft_seconds=7.0, ttft_target_seconds=5.0,
    )  # fmt: skip
    refused = a_decision(
        "b" * 32, now - 2, kept=KeptFor.REFUSED, outcome=RequestOutcome.REFUSED, rejection=RejectionReason.NO_INSTANCES, chosen="",
        reason=DecisionReason.NONE_CHOSEN, sample_rate=0.5,
    )  # fmt: skip
    old = a_decision("c" * 32, now - 3, sample_rate=0.25)
    await api.router.post_report(a_report("r1", decisions=(retried, refused, old)))
    found = await api.viewer.decision("a" * 32)
    assert (found.kept, found.attempts, found.client_request, found.trace) == (KeptFor.RETRIED, retried.attempts, "order-4711", TRACE)
    assert found.explanation.endswith(
        "host-a was lost after 250 ms. Then host-b served it. Its TTFT of 7.00 s missed the target of 5.00 s."
    )
    nowhere = await api.viewer.decision("b" * 32)
    assert nowhere.explanation == "No instance could take the request. The request was refused: rejected-no-endpoints."
    assert [one.id for one in (await api.viewer.decisions({"trace": TRACE})).items] == ["a" * 32]
    assert (await api.viewer.decisions({"trace": "5c" * 16})).items == []
    assert [one.id for one in (await api.viewer.decisions({"request": found.request})).items] == ["a" * 32]
    assert (await api.viewer.decisions({"request": "router-unknown"})).items == []
    for part in ("a" * 32, "order-4711", f"router-{'a' * 32}", TRACE):
        report = await api.viewer.search(part)
        assert [hit.id for group in report.groups for hit in group.hits] == ["a" * 32]
        assert report.note is None


async def test_what_is_not_there_was_most_likely_not_sampled(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("host-a")))
    with pytest.raises(ApiProblem) as unknown:
        await api.viewer.decision("d" * 32)
    assert (unknown.value.problem.status, unknown.value.problem.type) == (404, "not-sampled")
    assert "only a share" in (unknown.value.problem.remedy or "")
    now = api.clock().timestamp()
    rows = [a_decision(f"{number:032x}", now - number, sample_rate=0.05) for number in range(4)]
    late = a_decision("f" * 32, now, kept=KeptFor.LATE)
    await api.router.post_report(a_report("r1", decisions=(*rows, late)))
    with pytest.raises(ApiProblem) as unsampled:
        await api.viewer.decision("d" * 32)
    remedy = unsampled.value.problem.remedy or ""
    assert remedy.startswith("not sampled: only about 5 % of the decisions about requests without a problem are kept")
    assert "x-fairlead-explain: 1" in remedy
    assert "older than 7 days" in remedy
    report = await api.viewer.search("order-4711")
    assert report.note == remedy
    assert (await api.viewer.search("no id at all")).note is None


async def test_all_decisions_of_a_session_are_kept_for_some_minutes_and_routers_hear_of_it(
    api: ApiInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("host-a")))
    with pytest.raises(ApiProblem) as denied:
        await api.viewer.keep_session(CHAT, KeepSessionRequest(session="s/1"))
    assert denied.value.problem.status == 403
    async with following(api.router.api, "router-0") as lines:
        await lines.snapshot()
        made = await api.operator.keep_session(CHAT, KeepSessionRequest(session="s/1"))
        (told,) = (await lines.until(KeptSessionsLine)).sessions
        assert (told.pool, told.session) == (CHAT, "s/1")
        assert told.until == pytest.approx(made.until.timestamp())
        assert (await api.viewer.kept_sessions(CHAT)).sessions == [made]
        monkeypatch.setattr(routes, "MOST_SESSIONS", 1)
        assert (await api.operator.keep_session(CHAT, KeepSessionRequest(session="s/1", minutes=20))).until > made.until
        await lines.until(KeptSessionsLine)
        with pytest.raises(ApiProblem) as full:
            await api.operator.keep_session(CHAT, KeepSessionRequest(session="other"))
        assert full.value.problem.type == "too-many-kept-sessions"
        for wrong in (
            KeepSessionRequest(session=""),
            KeepSessionRequest(session="s", minutes=0),
            KeepSessionRequest(session="s", minutes=61),
        ):
            with pytest.raises(ApiProblem) as bad:
                await api.operator.keep_session(CHAT, wrong)
            assert bad.value.problem.status == 422
        await api.operator.let_session_go(CHAT, "s/1")
        assert (await lines.until(KeptSessionsLine)).sessions == ()
    await api.operator.let_session_go(CHAT, "s/1")
    assert (await api.viewer.kept_sessions(CHAT)).sessions == []
    actions = [entry.action for entry in (await api.viewer.audit()).items if entry.object == str(CHAT) and "decisions" in entry.action]
    assert actions == ["session.decisions-let-go", "session.decisions-kept", "session.decisions-kept"]


async def test_a_key_says_whether_it_may_explain(api: ApiInstance) -> None:
    made = await api.operator.create_gateway_key(GatewayKeyRequest(name="a", explain=True))
    plain = await api.operator.create_gateway_key(GatewayKeyRequest(name="b"))
    assert (made.explain, plain.explain) == (True, False)
    assert [one.explain for one in (await api.viewer.gateway_keys()).items] == [False, True]
    assert [
        entry.after["explain"] for entry in (await api.viewer.audit()).items if entry.action == "gateway-key.created" and entry.after
    ] == [
        False,
        True,
    ]


async def test_decisions_are_listed_by_why_they_are_kept_and_how_their_requests_ended(api: ApiInstance) -> None:
    await api.pool_operator.put_pool_state(CHAT, a_state(an_instance("host-a")))
    now = api.clock().timestamp()
    ways = [(kept, outcome) for kept in KeptFor for outcome in (None, *RequestOutcome)]
    made = [
        a_decision(f"{number:032x}", now - 1 - number, kept=kept, outcome=outcome, chosen="host-a")
        for number, (kept, outcome) in enumerate(ways)
    ]
    await api.router.post_report(a_report("r1", decisions=tuple(made)))
    for kept in (None, *KeptFor):
        for outcome in (None, *RequestOutcome):
            found = await api.viewer.decisions({"kept": kept, "outcome": outcome})
            wanted = [one.id for one in made if kept in (None, one.kept) and outcome in (None, one.outcome)]
            assert [one.id for one in found.items] == wanted
    with pytest.raises(ApiProblem, match="kept"):
        await api.viewer.decisions({"kept": "mood"})


async def test_a_key_that_is_there_is_allowed_to_have_decisions_kept_which_routers_hear_and_the_audit_log_has(api: ApiInstance) -> None:
    key = await api.operator.create_gateway_key(GatewayKeyRequest(name="team"))
    changed = await api.operator.change_gateway_key(key.id, GatewayKeyChange(explain=True))
    assert (changed.id, changed.explain, changed.secret) == (key.id, True, None)
    assert await api.operator.change_gateway_key(key.id, GatewayKeyChange(explain=True)) == changed
    (listed,) = (await api.viewer.gateway_keys()).items
    assert listed.explain
    (entry,) = (await api.viewer.audit({"action": "gateway-key.changed"})).items
    assert (entry.object, entry.before, entry.after) == (key.id, {"explain": False}, {"explain": True})
    with pytest.raises(ApiProblem) as low:
        await api.viewer.change_gateway_key(key.id, GatewayKeyChange(explain=False))
    assert low.value.problem.status == 403
    await api.operator.revoke_gateway_key(key.id)
    for name, status in ((key.id, 409), ("nope", 404)):
        with pytest.raises(ApiProblem) as refused:
            await api.operator.change_gateway_key(name, GatewayKeyChange(explain=False))
        assert refused.value.problem.status == status


async def test_the_audit_log_of_a_pool_has_what_was_done_to_its_instances_and_to_no_pool_named_alike(
    api: ApiInstance, database_url: str
) -> None:
    entry = (
        "INSERT INTO audit_log (id, at, day, actor, role, source, action, object, result, chain) "
        "VALUES (%s, now(), current_date, 'ada', 'operator', 'test', 'plan.applied', %s, 'ok', %s)"
    )
    with psycopg.connect(plain(database_url)) as connection:
        for number, name in enumerate(
            ("default/chat", "default/chat/chat-1", "default/chat-two", "default/chatter/chat-1", "default/c_at/x"), 1
        ):
            connection.execute(entry, (1000 + number, name, f"{number:064d}"))
    found = (await api.viewer.audit({"pool": "default/chat"})).items
    assert {one.object for one in found} == {"default/chat", "default/chat/chat-1"}
    assert {one.object for one in (await api.viewer.audit({"pool": "default/c_at"})).items} == {"default/c_at/x"}
