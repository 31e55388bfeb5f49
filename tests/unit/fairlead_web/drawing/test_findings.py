"""Findings as pages show them, and the plans that their buttons make."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape

import msgspec
import pytest

from fairlead.advice.findings import Cause, EvidenceKind, HarmUnit, Level
from fairlead_client.resources.advice import Advice, AdviceEvidence
from fairlead_client.resources.plan_kinds import PlanKind, PlanRequest
from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.running.web_client import visitor
from fairlead_web.drawing import findings
from fairlead_web.text.addresses import segment

AT = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
FOUND = Advice(
    pool=CODE,
    cause=Cause.SATURATED,
    subject="both",
    level=Level.BAD,
    harm=6.6,
    unit=HarmUnit.REQUESTS,
    sentence="It hurts.",
    evidence=AdviceEvidence(kind=EvidenceKind.HEATMAP, start=AT.replace(hour=9), end=AT, metric="ttft_p95"),
    plan=PlanRequest(kind=PlanKind.SCALE, replicas=7),
    plan_words="7 replicas",
)


def test_a_finding_leads_to_its_evidence_over_its_time() -> None:
    (found,) = findings.of_advice([FOUND])
    assert found.path == "/pools/research/code/heatmap?metric=ttft_p95&from=2026-11-21T09%3A00%3A00Z&to=2026-11-21T10%3A00%3A00Z"
    for kind in EvidenceKind:
        path = findings.evidence_path(CODE, AdviceEvidence(kind=kind, start=AT, end=AT, instance="i1"))
        assert path.startswith("/pools/research/code")


def test_a_finding_says_which_time_it_is_about() -> None:
    (late, unmet) = findings.of_advice([FOUND, replace(FOUND, cause=Cause.CONDITION_NOT_MET)])
    assert (late.when, unmet.when) == ("Last 1 h", "Now")


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (HarmUnit.REQUESTS, "6.6 requests/s"),
        (HarmUnit.INSTANCES, "7 instances"),
        (HarmUnit.WAITED_SECONDS, "6.60 s per hour"),
        (HarmUnit.SILENT_SECONDS, "7 s"),
        (HarmUnit.ERROR, "660.0 % off"),
        (HarmUnit.HITS, "660.0 % fewer hits"),
    ],
)
def test_a_harm_has_its_unit(unit: HarmUnit, words: str) -> None:
    assert findings.harm_words(replace(FOUND, unit=unit)) == words


def test_only_a_harm_that_counts_something_affects_it() -> None:
    found = {unit: findings.of_advice([replace(FOUND, unit=unit)])[0].harm for unit in HarmUnit}
    affecting = {unit for unit, words in found.items() if words.startswith("affects ")}
    assert affecting == {HarmUnit.REQUESTS, HarmUnit.INSTANCES, HarmUnit.ROUTERS}
    assert findings.of_advice([replace(FOUND, unit=HarmUnit.REQUESTS, harm=0.0)])[0].harm == "–"


def test_the_top_of_a_page_has_the_first_three_that_are_no_notes() -> None:
    note = replace(FOUND, level=Level.NOTE)
    assert len(findings.first(findings.of_advice([note, FOUND, FOUND, FOUND, FOUND]))) == findings.MOST
    assert findings.first(findings.of_advice([note])) == ()


async def test_the_overview_puts_the_worst_pool_first_with_the_button_that_plans_its_remedy() -> None:
    async with visitor("operator") as one:
        page = (await one.http.get("/")).text
        assert "research/code serves 87.1 % of requests in time (goal 90 %) because 3 of 3 instances are saturated" in page
        assert "Plan 6 replicas" in page
        cards = re.findall(r'<article id="card-([^"]+)" class="panel pool-card (\w+)"', page)
        assert cards == [(segment(CODE), "bad"), (segment(CHAT), "warn")]
        form = re.search(r'form="plan-this" formaction="([^"]+/advice)" name="plan"\s+value="([^"]+)"', page)
        assert form is not None
        asked = msgspec.json.decode(unescape(form[2]), type=PlanRequest)
        assert (asked.kind, asked.replicas) == (PlanKind.SCALE, 6)
        answer = await one.submit(form[1], "/", plan=unescape(form[2]))
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/plans/")


async def test_who_may_not_plan_gets_no_button_and_a_refused_plan_says_why() -> None:
    async with visitor("viewer") as one:
        page = (await one.http.get("/advice")).text
        assert "research/code serves" in page
        assert 'name="plan"' not in page
    async with visitor("operator") as one:
        for plan, status in (("{}", 400), ('{"kind": "scale", "replicas": 1000000}', 422)):
            answer = await one.submit("/pools/research/code/advice", plan=plan)
            assert answer.status_code == status
        assert "No plan was made" in answer.text


async def test_the_overview_has_a_figure_each_for_what_matters_and_the_next_starts_of_schedules() -> None:
    async with visitor("viewer") as one:
        page = (await one.http.get("/")).text
        totals = re.search(r'<section id="totals".*?</section>', page, re.DOTALL)
        assert totals is not None
        for words in ("In time", "TTFT p95", "Requests", "Refused", "Sessions moved", "Instance hours"):
            assert words in totals[0]
        assert page.count('class="spark"') == 2, "one of each pool"
        assert "Next scheduled" in page
