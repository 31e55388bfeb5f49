"""`fairlead pools` against the fake public API: lists revisions, rolls back, pauses and resumes after asking,
complains in one line.
"""

import json
from datetime import UTC, datetime

import pytest

from fairlead.canaries.verdicts import StepVerdict
from fairlead_cli.pools import canary_lines
from fairlead_client.resources.canaries import Canary, CanaryEstimate, CanaryLook, CanaryStep
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.command_line import Command

AT = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "operator") -> tuple[int, str, str]:
        return command("pools", *arguments, role=role)

    return one


def test_revisions_are_listed_with_what_going_back_would_change(run: Command) -> None:
    code, out, _ = run("revisions", "chat", role="viewer")
    assert code == 0
    assert "RollingOut: 2 instances still have the old template" in out
    assert "Instances with the present template: both 6 of 8." in out
    assert "in force" in out
    assert "/spec/engine/prefillTokensPerSecond" in out


def test_a_rollback_shows_its_effect_and_writes_the_old_template(run: Command, fake: FakePublicApi) -> None:
    code, out, _ = run("rollback", "default/chat", "--to", "1", "--yes")
    assert code == 0
    assert "/spec/engine/prefillTokensPerSecond: 6250 → 5000" in out
    assert "2 of 8 instances of role both are drained and replaced" in out
    assert "Applied." in out
    assert fake.world.spec(CHAT)["engine"]["prefillTokensPerSecond"] == 5000


def test_a_rollout_is_paused_and_resumed_through_plans(run: Command, fake: FakePublicApi) -> None:
    code, out, _ = run("pause", "chat", "--yes", "--reason", "errors in the new image")
    assert (code, fake.world.spec(CHAT)["rollout"]["paused"]) == (0, True)
    assert "/spec/rollout/paused: False → True" in out
    assert "Outdated instances stay" in out
    assert run("resume", "default/chat", "--yes")[0] == 0
    assert fake.world.spec(CHAT)["rollout"]["paused"] is False


def test_nothing_is_written_without_a_yes(run: Command, fake: FakePublicApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.confirm", lambda _, err: False)
    code, _, err = run("rollback", "chat")
    assert (code, fake.book.applied, err) == (1, [], "Nothing was changed.\n")


@pytest.mark.parametrize(
    ("arguments", "failed", "line"),
    [
        (("rollback", "chat", "--to", "9", "--yes"), 2, "the pool's revisions are: 2, 1"),
        (("rollback", "nope", "--yes"), 1, "There is no pool default/nope."),
        (("rollback", "research/code", "--role", "decode", "--yes"), 2, "role: 'decode' cannot be used; write both"),
        (("revisions", "/chat"), 2, "NAME: '/chat' cannot be used; write a pool's name, or namespace/name"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(run: Command, arguments: tuple[str, ...], failed: int, line: str) -> None:
    code, _, err = run(*arguments)
    assert code == failed
    assert line in err
    assert err.count("\n") == 1


def test_a_pool_that_git_owns_is_not_written_and_the_patch_is_given(run: Command, fake: FakePublicApi) -> None:
    fake.world.owner[CHAT] = "Argo CD (shop)"
    code, out, err = run("rollback", "chat", "--yes")
    assert (code, fake.book.applied) == (1, [])
    assert err == "fairlead: Argo CD (shop) owns this pool; commit the patch above there\n"
    assert "prefillTokensPerSecond: 5000" in out


def test_a_metric_that_no_pair_of_sessions_has_is_not_shown_as_unchanged() -> None:
    estimates = [
        CanaryEstimate(metric=name, is_ratio=True, pairs=pairs, change=0.0, low=None, high=None, verdict=StepVerdict.WAIT)
        for name, pairs in (("ttft", 0), ("tpot", 7))
    ]
    look = CanaryLook(
        at=AT,
        verdict=StepVerdict.WAIT,
        reason="open",
        requests=9,
        canary_requests=3,
        canary_sessions=1,
        other_sessions=2,
        late_requests=4,
        estimates=estimates,
    )
    step = CanaryStep(step="a/0", share=0.1, began_at=AT, ended_at=None, hits_judged_at=AT, looks=[look])
    assert list(canary_lines(Canary(pool="default/chat", steps=[step])))[1:] == [
        "    4 requests were reported too late to count",
        "    ttft    not measured",
        "    tpot    +0 %, between ? and ?; 7 pairs, wait",
    ]


def test_shadows_are_shown_with_what_they_are_predicted_to_change_and_that_it_is_a_prediction(run: Command) -> None:
    code, out, _ = run("shadows", "chat", role="viewer")
    assert code == 0
    (ear,) = [line for line in out.splitlines() if line.startswith("ear")]
    assert "94.2%" in ear
    assert "+0.031 ± 0.011 s" in ear
    assert "+310 ± 160 tokens" in ear
    assert "no engine got the requests" in out
    code, out, _ = run("shadows", "chat", "-o", "json", role="viewer")
    assert code == 0
    assert json.loads(out)["policies"][0]["asked"] == 3600
