"""`fairlead change` against the fake public API: plans of every kind, shown, applied, undone and planned again."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead_cli import main as command_line
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.plans import PlanState
from fairlead_testing.fakes.public_api.app import FakePublicApi
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, INSTANCES
from fairlead_testing.running.command_line import Command


@pytest.fixture
def run(command: Command) -> Command:
    def one(*arguments: str, role: str = "admin") -> tuple[int, str, str]:
        return command("change", *arguments, "--yes", "--reason", "tried", role=role)

    return one


def test_fields_of_a_section_are_set_and_taken_back(run: Command, fake: FakePublicApi) -> None:
    code, out, _ = run("set", "chat", "slo", "ttft=3s", "percentile=95")
    assert code == 0
    assert "/spec/slo/ttft: 5s → 3s" in out
    assert (fake.world.spec(CHAT)["slo"]["ttft"], fake.world.spec(CHAT)["slo"]["percentile"]) == ("3s", 95)
    code, out, _ = run("undo", next(iter(fake.book.plans)))
    assert (code, fake.world.spec(CHAT)["slo"]["ttft"]) == (0, "5s")


def test_every_kind_has_a_command(run: Command, fake: FakePublicApi) -> None:
    session = next(one.session for one in fake.world.sessions() if one.pool == CHAT and one.instance)
    name = INSTANCES[CHAT][0]
    for arguments in (
        ("scale", "chat", "9"),
        ("set", "chat", "ring", "anchorsPerInstance=80"),
        ("migrations", "paused", "chat"),
        ("instance", "cordon", "chat", name),
        ("move", "chat", session, INSTANCES[CHAT][1]),
        ("unpin", "chat", session),
        ("weight", "chat", name, "0.5"),
        ("revert", "chat", "2"),
        ("delete", "chat"),
    ):
        code, out, err = run(*arguments)
        assert (code, err) == (0, ""), arguments
        assert "Applied." in out, arguments
    assert len(fake.book.applied) == 9
    assert fake.world.annotations(name)["fairlead.dev/weight"] == "0.5"


UNDOABLE = (
    (("scale", "chat", "9"), AccessRole.OPERATOR),
    (("set", "chat", "policy", "policy=sticky", "parameters={}"), AccessRole.ADMIN),
    (("set", "chat", "slo", "ttft=3s"), AccessRole.ADMIN),
    (("set", "chat", "early-rejection", "mode=Disabled"), AccessRole.ADMIN),
    (("set", "chat", "ring", "anchorsPerInstance=80"), AccessRole.ADMIN),
    (("set", "chat", "scaling", "zero.idleAfter=5m"), AccessRole.ADMIN),
    (("set", "chat", "ratio", "band=0.4"), AccessRole.ADMIN),
    (("set", "chat", "rollout", "paused=true"), AccessRole.OPERATOR),
    (("migrations", "paused", "chat"), AccessRole.OPERATOR),
    (("revert", "chat", "2"), AccessRole.ADMIN),
    (("weight", "chat", INSTANCES[CHAT][0], "0.5"), AccessRole.OPERATOR),
    (("instance", "cordon", "chat", INSTANCES[CHAT][0]), AccessRole.OPERATOR),
    (("instance", "drain", "chat", INSTANCES[CHAT][0]), AccessRole.OPERATOR),
)


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_every_change_is_taken_back_to_what_was_before_by_who_may_make_it(run: Command, fake: FakePublicApi, role: str) -> None:
    name = INSTANCES[CHAT][0]
    for arguments, needed in UNDOABLE:
        before = fake.world.spec(CHAT), fake.world.annotations(name)
        code, out, err = run(*arguments, role=role)
        if not AccessRole(role).reaches(needed):
            assert (code, "needs the role" in err, (fake.world.spec(CHAT), fake.world.annotations(name))) == (1, True, before), arguments
            continue
        assert (code, (fake.world.spec(CHAT), fake.world.annotations(name)) != before) == (0, True), (arguments, out, err)
        assert run("undo", fake.book.applied[-1], role=role)[0] == 0
        assert (fake.world.spec(CHAT), fake.world.annotations(name)) == before, arguments


def test_a_conflict_shows_both_differences_whole_and_how_to_plan_again(command: Command, fake: FakePublicApi) -> None:
    made = fake.book.make(CHAT, 10, "ada")
    fake.book.plans[made.id] = replace(made, state=PlanState.SUPERSEDED)
    code, _, err = command("plans", "apply", made.id, "--yes", role="admin")
    assert code == 1
    assert "  /spec/replicas: 8 → 10" in err
    assert "Changed meanwhile by grace" in err
    assert "  /spec/replicas: 8 → 9" in err
    assert f"fairlead change again {made.id}" in err


def test_all_pools_are_paused_and_those_that_are_stay_as_they_are(run: Command, fake: FakePublicApi) -> None:
    assert run("migrations", "paused", "chat")[0] == 0
    code, out, _ = run("migrations", "paused", "--all")
    assert code == 0
    assert f"{CODE}:" in out
    assert f"{CHAT}:" not in out
    assert {fake.world.spec(pool)["routing"]["migrations"] for pool in (CHAT, CODE)} == {"Paused"}


def test_a_change_of_all_pools_that_is_not_answered_to_the_end_tells_how_far_it_came(
    command: Command, fake: FakePublicApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = command("change", "migrations", "paused", "--all", "--reason", "tried", role="admin")
    paused = [pool for pool in (CHAT, CODE) if fake.world.spec(pool)["routing"].get("migrations") == "Paused"]
    assert (code, len(paused)) == (1, 1)
    assert f"standard input gave no answer (changed: {paused[0]}; unchanged: " in err
    assert "nothing was changed" not in err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    _, _, err = command("change", "migrations", "paused", "--all", "--reason", "tried", role="admin")
    assert "(changed: no pool; unchanged: " in err


def test_an_outdated_plan_is_planned_again(run: Command, fake: FakePublicApi) -> None:
    run("scale", "chat", "9")
    (made,) = fake.book.plans.values()
    fake.book.plans[made.id] = replace(made, state=PlanState.SUPERSEDED)
    code, out, _ = run("again", made.id)
    assert code == 0
    assert "Applied." in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("set", "chat", "slo", "ttft"), "write a field of the section and its value, such as ttft=3s"),
        (("migrations", "paused"), "name at least one pool, or write --all"),
        (("move", "chat", "nobody", "x"), "There is no session nobody"),
    ],
)
def test_what_cannot_be_asked_is_told_in_one_line(run: Command, arguments: tuple[str, ...], told: str) -> None:
    code, _, err = run(*arguments)
    assert code != 0
    assert told in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("content", "why"), [(b"{a: [", "write a schedule as YAML"), (b"\xff\xfe", "write a schedule as YAML")])
def test_a_schedule_that_is_not_yaml_is_refused_by_its_files_name(run: Command, tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "night.yaml"
    file.write_bytes(content)
    code, _, error = run("schedule", "chat", "set", "night", "--spec", str(file))
    assert code == 2
    assert f"--spec: '{file}' cannot be used; {why}" in error


def test_a_field_that_has_a_value_has_no_fields_of_its_own(run: Command) -> None:
    code, _, error = run("set", "chat", "slo", "ttft=3", "ttft.x=1")
    assert (code, "ttft is given both as one value and by its fields" in error) == (2, True)


def test_a_token_that_cannot_be_one_is_refused_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["change", "scale", "chat", "3", "--token", "t\u00f6ken"]) == 2
    error = capsys.readouterr().err
    assert ("characters that no token has" in error, "t\u00f6ken" in error) == (True, False)
