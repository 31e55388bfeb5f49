"""`fairlead serve` before simulated engines that run as separate processes."""

import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fairlead.routing.knowledge.prefill_speeds import ENOUGH_PREFILLS
from fairlead_sandbox.marks import marked_processes
from fairlead_serve.state_files import own_pool_file
from fairlead_testing.running.engine import RunningEngine, StartEngine, engine_starter
from fairlead_testing.running.sandbox import asking, fairlead, until
from fairlead_testing.running.serving import POOL, Serving, serving
from fairlead_testing.running.shown_commands import DONE, checkout, commands_of, failures, run_commands

FAST = ("--time-scale", "20")
SENTENCE = "The anchor holds the session where its prefix is cached. "


@pytest.fixture(scope="module")
def start() -> Iterator[StartEngine]:
    with engine_starter() as starter:
        yield starter


@dataclass
class Run:
    """One run for all tests.

    A process that a test ended, or a file that it changed, is restored before the next test, so that each passes alone
    and repeatedly.
    """

    state: Path
    start: StartEngine
    engines: dict[str, RunningEngine]
    """The engines, by the names that they get."""
    stack: ExitStack
    flags: tuple[str, ...]
    serving: Serving | None = None
    file: str = ""

    def served(self) -> Serving:
        """Return the run with the initial file, and both engines serving."""
        for engine in self.engines.values():
            if engine.process.poll() is not None:
                engine.process = self.start(*FAST, "--port", str(engine.port)).process
        running = self.serving
        if running is None or running.process.poll() is not None:
            running = self.serving = self.stack.enter_context(serving(self.state, *(() if self.file else self.flags)))
        path = own_pool_file(running.state.root)
        if not self.file:
            edit(running, routing={"warming": {"duration": "0s"}})
            self.file = path.read_text()
        elif path.read_text() != self.file:
            path.write_text(self.file)
        running.until_states(**dict.fromkeys(self.engines, "Serving"))
        return running


@pytest.fixture(scope="module")
def run(start: StartEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    engines = {name_of(engine): engine for engine in (start(*FAST), start(*FAST))}
    flags = tuple(part for engine in engines.values() for part in ("--engine", engine.url))
    with ExitStack() as stack:
        yield Run(tmp_path_factory.mktemp("serve") / "state", start, engines, stack, flags)


@pytest.fixture
def served(run: Run) -> Serving:
    return run.served()


@pytest.fixture
def engines(run: Run) -> dict[str, RunningEngine]:
    return run.engines


@pytest.fixture
def state(run: Run) -> Path:
    return run.state


def name_of(engine: RunningEngine) -> str:
    return f"127.0.0.1-{engine.port}"


def edit(running: Serving, **changes: Any) -> None:
    """Change sections of the pool's file, as with an editor."""
    path = own_pool_file(running.state.root)
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def chat(running: Serving, session: str, turn: int, tokens: int = 4, *, stream: bool = False) -> httpx.Response:
    words = f"{session}: " + SENTENCE * (20 * (turn + 1))
    return asking().post(
        running.url("router-0") + "/v1/chat/completions",
        headers={"x-session-id": session},
        json={"model": "m", "max_tokens": tokens, "stream": stream, "messages": [{"role": "user", "content": words}]},
    )


@contextmanager
def constant_load(running: Serving) -> Iterator[list[int]]:
    """Let three clients send one request after another; yield the statuses of their answers."""
    statuses: list[int] = []
    ended = threading.Event()

    def client(number: int) -> None:
        turn = 0
        while not ended.is_set():
            statuses.append(chat(running, f"load-{number}-{turn % 7}", 1, tokens=30).status_code)
            turn += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def applied(running: Serving, **request: Any) -> dict[str, Any]:
    made = running.request("POST", f"{POOL}/plans", json=request)
    assert made.status_code == 201, made.text
    answer = running.request("POST", f"/v1/plans/{made.json()['id']}/apply", json={"confirm": "engines", "reason": "a test"})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def revisions(running: Serving) -> list[dict[str, Any]]:
    """Return the pool's revisions, the latest first."""
    found: list[dict[str, Any]] = running.ask(f"{POOL}/revisions", limit=50)["items"]
    return found


def reasons(running: Serving) -> set[str]:
    return {event["reason"] for event in running.ask(f"{POOL}/events", limit=50)["items"]}


def known_sessions(running: Serving) -> set[str]:
    return {one["session"] for one in running.ask("/v1/sessions", limit=100)["items"]}


def test_it_says_where_to_go_and_what_it_found(served: Serving, engines: dict[str, RunningEngine]) -> None:
    said = served.said
    assert f"{served.url('router-0')}/v1" in said
    assert f"{served.url('api')}/login?token=" in said
    for engine in engines.values():
        assert f"{engine.url}  m · version fairlead-simulator" in said
    assert "KV cache of 1,198,368 tokens" in said


def test_requests_are_served_and_sessions_find_their_prefix_again(served: Serving) -> None:
    for turn in range(6):
        for session in range(6):
            answer = chat(served, f"s{session}", turn)
            assert answer.status_code == 200, answer.text
    # Each turn repeats all that came before it. What is told first may be of the first turns alone.
    until(lambda: (served.ask(POOL)["pool"]["hit_rate"] or 0) > 0.4, "most of what was asked again was found")
    until(lambda: known_sessions(served) >= {f"s{session}" for session in range(6)}, "the sessions are known")


def test_what_only_kubernetes_could_do_is_refused_and_not_offered(served: Serving) -> None:
    refused = served.request("POST", f"{POOL}/plans", json={"kind": "scale", "replicas": 3})
    assert refused.status_code == 409
    assert refused.json()["type"] == "engines-are-fixed"
    assert "add an engine to the file" in refused.json()["detail"]
    page = served.page("/pools/default/engines")
    assert str(own_pool_file(served.state.root)) in page
    assert 'id="change-slo"' in page
    for absent in ('id="change-scale"', 'id="change-rollout"', 'id="h-rollout"', "/pools/default/engines/scaling"):
        assert absent not in page
    assert "New schedule" not in served.page("/schedules")


def test_an_engine_that_is_killed_leaves_and_comes_back(served: Serving, start: StartEngine, engines: dict[str, RunningEngine]) -> None:
    name, engine = next(iter(engines.items()))
    other = next(one for one in engines if one != name)
    os.kill(engine.process.pid, signal.SIGKILL)
    served.until_states(**{name: "Lost", other: "Serving"})
    assert all(chat(served, f"s{session}", 0).status_code == 200 for session in range(6))
    until(lambda: "it does not accept connections" in condition(served, "Degraded", "True")["message"], "the pool says so")
    engine.process = start(*FAST, "--port", str(engine.port)).process
    served.until_states(**{name: "Serving", other: "Serving"})
    until(lambda: {"EngineLost", "EngineBack"} <= reasons(served), "each step is told")


def test_engines_come_and_go_by_the_file_without_a_failed_request(
    served: Serving, start: StartEngine, engines: dict[str, RunningEngine]
) -> None:
    third = start(*FAST)
    urls = [{"url": engine.url} for engine in engines.values()]
    with constant_load(served) as statuses:
        edit(served, engines=[*urls, {"url": third.url}])
        served.until_states(**dict.fromkeys([*engines, name_of(third)], "Serving"))
        seen = len(statuses)
        until(lambda: len(statuses) > seen + 20, "the third takes part in it")
        edit(served, engines=urls)
        served.until_states(**dict.fromkeys(engines, "Serving"))
        seen = len(statuses)
        until(lambda: len(statuses) > seen + 10, "it goes on")
    assert set(statuses) == {200}
    until(lambda: {"EngineAdded", "EngineDraining", "EngineRemoved"} <= reasons(served), "each step is told")


def test_an_engine_is_added_by_plan_and_the_undo_takes_it_out(
    served: Serving, start: StartEngine, engines: dict[str, RunningEngine]
) -> None:
    third = start(*FAST)
    plan = applied(served, kind="engines", fields={"action": "add", "url": third.url})
    assert plan["target"] == "Engines default/engines"
    assert [one["path"] for one in plan["diff"]] == [f"/engines/{name_of(third)}"]
    assert plan["effect"]["instances_added"] == 1
    assert 0.1 < plan["effect"]["key_share_moved"] < 0.6
    served.until_states(**dict.fromkeys([*engines, name_of(third)], "Serving"))
    inverse = served.request("POST", f"/v1/plans/{plan['id']}/undo").json()
    assert inverse["effect"]["victims"] == [name_of(third)]
    done = served.request("POST", f"/v1/plans/{inverse['id']}/apply", json={"confirm": "engines", "reason": "a test"})
    assert done.status_code == 200, done.text
    served.until_states(**dict.fromkeys(engines, "Serving"))
    assert [one["url"] for one in yaml.safe_load(own_pool_file(served.state.root).read_text())["engines"]] == [
        one.url for one in engines.values()
    ]


def test_an_engine_is_drained_and_taken_back_by_plan(served: Serving, engines: dict[str, RunningEngine]) -> None:
    one, other = engines
    plan = applied(served, kind="drain", instance=one)
    assert plan["target"] == f"Engine default/{one}"
    served.until_states(**{one: "Draining", other: "Serving"})
    before = served.ask(f"{POOL}/instances/{other}")
    assert all(chat(served, f"s{session}", 0).status_code == 200 for session in range(6)), before
    back = served.request("POST", f"/v1/plans/{plan['id']}/undo")
    assert back.status_code in {200, 201}, back.text
    taken = served.request("POST", f"/v1/plans/{back.json()['id']}/apply", json={"confirm": "engines", "reason": "a test"})
    assert taken.status_code == 200, taken.text
    served.until_states(**{one: "Serving", other: "Serving"})


def test_a_file_that_cannot_be_used_changes_nothing_and_is_told(served: Serving, engines: dict[str, RunningEngine]) -> None:
    path = own_pool_file(served.state.root)
    good = path.read_text()
    edit(served, slo={"ttft": "soon"})
    try:
        until(lambda: "slo.ttft: 'soon' cannot be used" in condition(served, "Ready", "False")["message"], "the pool says so")
        assert chat(served, "s0", 0).status_code == 200
    finally:
        path.write_text(good)
    until(lambda: condition(served, "Ready", "True")["message"], "it is well again")


def test_early_rejection_refuses_what_would_be_late(served: Serving) -> None:
    applied(served, kind="slo", fields={"ttft": "1ms"})
    applied(served, kind="early-rejection", fields={"mode": "Load"})
    until(lambda: chat(served, "late", 9).status_code == 200, "an idle engine tries it")
    for number in range(2 * ENOUGH_PREFILLS):  # both engines' first tokens are seen: nothing is refused by a declared speed
        assert chat(served, f"seen-{number}", 20, stream=True).status_code == 200
    with constant_load(served) as statuses:
        until(lambda: 429 in statuses, "a request is refused while both engines compute")
    assert until(lambda: served.ask("/v1/rejections", pool="default/engines")["groups"], "the refusal is counted")
    assert "ttft: 1ms" in own_pool_file(served.state.root).read_text(), "the page's change is in the file"
    applied(served, kind="early-rejection", fields={"mode": "Disabled"})
    with constant_load(served) as statuses:
        until(lambda: statuses[-10:].count(200) == 10, "all are served again")


def test_ctrl_c_leaves_nothing_running_and_the_next_run_knows_everything(
    served: Serving, state: Path, engines: dict[str, RunningEngine]
) -> None:
    assert chat(served, "kept", 0).status_code == 200
    sessions = until(lambda: known_sessions(served), "a session is known")
    edit(served, slo={"ttft": "7s"})
    until(lambda: revisions(served)[0]["spec"].get("slo", {}).get("ttft") == "7s", "the last change is a revision")
    numbers = [one["number"] for one in revisions(served)]
    said = served.stop()
    assert "stopped; nothing is left running" in said
    assert "Traceback" not in said
    assert not marked_processes(state.resolve())
    with serving(state) as again:
        again.until_states(**dict.fromkeys(engines, "Serving"))
        assert known_sessions(again) >= sessions
        assert [one["number"] for one in revisions(again)] == numbers
        assert chat(again, "s0", 1).status_code == 200


def test_without_an_engine_that_answers_it_starts_and_waits(start: StartEngine, tmp_path: Path) -> None:
    engine = start(*FAST)
    engine.process.kill()
    engine.process.wait()
    with serving(tmp_path / "state", "--engine", engine.url) as waiting:
        assert "no engine answers yet" in waiting.said
        start(*FAST, "--port", str(engine.port))
        until(lambda: waiting.request("GET", POOL).status_code == 200 and waiting.states(), "the pool is there")
        until(lambda: chat(waiting, "first", 0).status_code == 200, "it serves")


def test_a_port_that_is_taken_is_named(start: StartEngine, tmp_path: Path) -> None:
    engine = start(*FAST)
    ended = fairlead("serve", "--state-dir", str(tmp_path / "state"), "--engine", engine.url, "--port", str(engine.port))
    assert ended.returncode == 2
    assert (
        ended.stderr.strip()
        == f"fairlead: --port: {engine.port} cannot be used; the port is taken; write another port, or leave the option out to use a free port"
    )


def condition(running: Serving, kind: str, status: str) -> dict[str, Any]:
    """Return the condition while it has this status; else a false one without a message."""
    found = running.ask(POOL)["conditions"]
    return next((one for one in found if one["type"] == kind and one["status"] == status), {"message": ""})


def test_prefill_and_decode_engines_are_served_together(tmp_path: Path, start: StartEngine) -> None:
    prefill, *decodes = (start(*FAST) for _ in range(3))
    flags = ("--prefill", prefill.url, "--decode", decodes[0].url, "--decode", decodes[1].url)
    with serving(tmp_path / "divided", *flags) as running:
        running.until_states(**{f"127.0.0.1-{one.port}": "Serving" for one in (prefill, *decodes)})
        body = {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": SENTENCE * 40}]}
        answer = asking().post(f"{running.url('router-0')}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-fairlead-instance"] == f"127.0.0.1-{prefill.port}"
        assert answer.headers["x-fairlead-decode"] in {f"127.0.0.1-{one.port}" for one in decodes}
        detail = running.ask(POOL)
        assert detail["desired"] == {"prefill": 1, "decode": 2}
        page = running.page("/pools/default/engines")
        assert "prefill" in page
        assert "decode" in page


def test_the_commands_of_its_page(tmp_path: Path, start: StartEngine) -> None:
    """The commands of `docs/serve.md`: the processes that it starts, and the calls from its other terminal."""
    page = "docs/serve.md"
    two, divided = [shlex.split(one) for one in commands_of(page) if one.startswith("fairlead serve")]
    engines = iter(start(*FAST).url for _ in range(5))
    folder = checkout(tmp_path / "checkout")
    with serving(folder / "divided", *(next(engines) if word.startswith("http") else word for word in divided[2:])) as running:
        until(lambda: len(running.states()) == 3, "prefill and decode are a pool")
    with serving(folder / ".fairlead-serve", *(next(engines) if word.startswith("http") else word for word in two[2:])) as running:
        until(lambda: len(running.states()) == 2, "both are a pool")
        stand_ins = {"make .venv/ready": "source .venv/bin/activate", "fairlead serve": DONE}
        ran = run_commands(page, folder, stand_ins, {"http://127.0.0.1:8100": running.url("router-0")})
    assert failures(ran) == []
    said = {one.command.partition("#")[0].strip(): one.said for one in ran}
    assert said["fairlead instances list engines"].count("127.0.0.1-") == 2
    assert '"m"' in next(text for command, text in said.items() if command.startswith("curl"))
