"""The first pages of the documents: every command on them has the effect that the page describes, in the page's order.

`serve.md` is run in test_serve.py, `on-my-cluster.md` in test_chart.py, with their sandboxes.
"""

import shutil
from pathlib import Path

import pytest

from fairlead_testing.running.sandbox import RunningSandbox, until
from fairlead_testing.running.shown_commands import DONE, Ran, checkout, failures, run_commands

pytestmark = [
    pytest.mark.nightly,  # minutes of traffic in real time; the pages' words are checked by each run of the unit tests
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
]

MADE = {"make up": DONE}
"""Commands that the sandbox's fixture has run already."""
JUDGED = "kubectl wait fpool/chat --for=condition=SLOMet"
"""A command whose result depends on the machine; test_first_steps.py tests whether the pool is in time."""


@pytest.fixture(scope="module")
def folder(sandbox: RunningSandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("first-pages") / "checkout", **{".fairlead": sandbox.state.root})


@pytest.fixture(scope="module")
def ten_minutes(sandbox: RunningSandbox, folder: Path) -> list[Ran]:
    return run_commands("docs/ten-minutes.md", folder, {**MADE, JUDGED: f"{JUDGED} --timeout=60s || {JUDGED}=false"}, {})


def test_ten_minutes(sandbox: RunningSandbox, ten_minutes: list[Ran]) -> None:
    assert failures(ten_minutes) == []
    said = {one.command.partition("#")[0].strip(): one.said for one in ten_minutes}
    assert "chat" in said["kubectl get fpool"]
    assert "had TTFT under 5 s" in next(text for command, text in said.items() if "--requests 400" in command)
    assert "/login?token=" in said["fairlead login"]
    until(lambda: sandbox.pool("chat")["status"]["desired"] == 4, "the last scale counts")


def test_which_policy(ten_minutes: list[Ran], folder: Path) -> None:
    ran = run_commands("docs/which-policy.md", folder, {}, {})
    assert failures(ran) == []
    assert list((folder / "plots").iterdir())
    said = {one.command.partition("#")[0].strip(): one.said for one in ran}
    assert "dualmap" in next(text for command, text in said.items() if command.startswith("fairlead what-if run"))


def test_the_life_of_a_request(sandbox: RunningSandbox, ten_minutes: list[Ran], folder: Path) -> None:
    show = "fairlead decisions show"
    patiently = {show: f"for i in {{1..60}}; do {show} $id && break; sleep 1; done"}
    ran = run_commands("docs/life-of-a-request.md", folder, patiently, {"http://127.0.0.1:8000": sandbox.routers[0]})
    assert failures(ran) == []
    headers = (folder / "headers.txt").read_text()
    assert "x-fairlead-decision-kept: true" in headers
    instance = next(line.partition(": ")[2].strip() for line in headers.splitlines() if line.startswith("x-fairlead-instance:"))
    assert all(instance in one.said for one in ran if one.command.startswith(("fairlead decisions show", "fairlead sessions show")))
