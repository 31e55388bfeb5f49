"""Pools that learn, with real processes: models place requests, and no request fails by a killed trainer or a damaged
model.
"""

import asyncio
import json
import os
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from fairlead.reports.predictors import ModelFigures, TrainedModel
from fairlead.tables import PoolKey
from fairlead_client.internal import SystemApi
from fairlead_client.outcomes import Taken
from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_testing.builders.sandbox_pools import pool
from fairlead_testing.running.sandbox import RunningSandbox, asking, until
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.learnt_models import damaged, sum_of

POOL = PoolKey(namespace="default", name="learner")
LEARNING = {"first_samples": 100, "round_samples": 100, "hidden_units": 16}
CLIENTS = 6


def test_a_pool_that_learns_loses_no_request_to_its_trainer_or_to_a_damaged_model(sandbox: RunningSandbox) -> None:
    routing = {"policy": "lodestar", "parameters": LEARNING, "warming": {"duration": "250ms"}}
    sandbox.apply_pool(pool("learner", replicas=3, routing=routing)).raise_for_status()
    sandbox.until_ready("learner", 3)

    with load(sandbox):
        [decider] = until(
            lambda: [one for one in (0, 1) if choices(sandbox, one, "model")], "choices of the router that decides by its model"
        )
        other = 1 - decider
        before = figure(sandbox, decider, "models")
        os.kill(trainer_of(sandbox, f"router-{decider}"), signal.SIGKILL)
        until(lambda: figure(sandbox, decider, "trainers_lost") == 1, "the loss of the trainer is counted")
        until(lambda: figure(sandbox, decider, "models") > before, "models of the next trainer")
        assert figure(sandbox, decider, "models_refused") == 0
    learnt = [one for one in sandbox.everything("/v1/decisions", pool=str(POOL)) if one["reason"] == "learned-ttft"]
    assert {one["policy"] for one in learnt} == {"lodestar"}

    for router in (0, 1):
        sandbox.kill(f"router-{router}")
        until(partial(figure, sandbox, router, "models"), "a restarted router begins with the newest stored model")
    asyncio.run(store_damaged_model(sandbox))  # neither router has a sample since its start, so no model follows this one
    sandbox.kill(f"router-{decider}")
    until(lambda: figure(sandbox, decider, "models_refused", fault="corrupt"), "the damaged model is refused")
    assert figure(sandbox, decider, "models") == 0
    with load(sandbox):
        until(lambda: choices(sandbox, decider, "cold-start"), "choices by the heuristic")
        until(lambda: choices(sandbox, decider, "model"), "choices by a model that this router trained")
        assert figure(sandbox, other, "models"), "the other router has its model still"
    sandbox.delete_pool("learner")


def test_a_pool_of_the_default_policy_obeys_a_model_that_errs_less_than_the_formula_and_says_so(sandbox: RunningSandbox) -> None:
    key = PoolKey(namespace="default", name="doubter")
    routing = {"policy": "fairlead", "parameters": {"learned_ttft": True}, "warming": {"duration": "250ms"}}
    sandbox.apply_pool(pool(key.name, replicas=3, routing=routing)).raise_for_status()
    sandbox.until_ready(key.name, 3)

    def learnt_decisions() -> list[dict[str, Any]]:
        decisions = sandbox.everything("/v1/decisions", pool=str(key))
        return [one for one in decisions if one["rule"]["code"].startswith("learned-")]

    with load(sandbox, key):
        [decider] = until(
            lambda: [one for one in (0, 1) if choices(sandbox, one, "model", key)], "choices of the router that decides by its model"
        )
        learnt = until(learnt_decisions, "a decision on record that a model made")
    assert choices(sandbox, decider, "unproven", key) >= 100
    limits = {one["name"]: one["value"] for one in learnt[0]["limits"]}
    assert 0 < limits["learned_error_seconds"] <= limits["formula_error_seconds"]
    sandbox.delete_pool(key.name)


@contextmanager
def load(sandbox: RunningSandbox, key: PoolKey = POOL) -> Iterator[None]:
    """Send streamed requests by several clients, one by one each, while it is open; fail unless each is served."""
    ended = Event()
    outcomes: Counter[str] = Counter()
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS

    def client(number: int) -> None:
        router = sandbox.routers[number % 2]
        for turn in count():
            if ended.is_set() or time.monotonic() > deadline:
                return
            prompt = f"conversation {number} " * 200 + f"turn {turn} " * (10 + 90 * (turn % 5))
            outcomes[asked(router, {"model": str(key), "prompt": prompt, "max_tokens": 4, "stream": True})] += 1

    with ThreadPoolExecutor(CLIENTS) as clients:
        running = [clients.submit(client, number) for number in range(CLIENTS)]
        try:
            yield
        finally:
            ended.set()
        for one in running:
            one.result()
    assert set(outcomes) == {"served"}, outcomes


def asked(router: str, body: dict[str, object]) -> str:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{router}/v1/completions", json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return "served" if answer.read().rstrip().endswith(b"data: [DONE]") else "cut short"
    except OSError as error:
        return repr(error)


def choices(sandbox: RunningSandbox, router: int, by: str, key: PoolKey = POOL) -> float:
    return figure(sandbox, router, "choices", by=by, pool=str(key))


def figure(sandbox: RunningSandbox, router: int, what: str, **labels: str) -> float:
    """Return a counter of learning in that router; 0 while there is none."""
    name = f"fairlead_router_{what}_total" if what == "trainers_lost" else f"fairlead_router_learning_{what}_total"
    try:
        page = asking().get(sandbox.metrics_pages[router]).text
    except httpx.HTTPError:
        return 0.0
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def trainer_of(sandbox: RunningSandbox, router: str) -> int:
    parent = str(sandbox.pid(router))
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if b"fairlead_router.training.child" in command and (folder / "stat").read_text().rpartition(")")[2].split()[1] == parent:
                return int(folder.name)
        except OSError:
            continue  # it ended meanwhile
    raise AssertionError(f"{router} has no trainer")


async def store_damaged_model(sandbox: RunningSandbox) -> None:
    figures = ModelFigures(router="router-0", round=99, samples_seen=1000, trained_on=800)
    model = TrainedModel(id="f" * 32, pool=POOL, at=time.time(), figures=figures, content=damaged(sum_of("prefill_tokens")))
    token = load_or_create(sandbox.state.secrets).router
    async with SystemApi(sandbox.url("api"), token, timeout_seconds=PATIENCE_SECONDS, connect_seconds=PATIENCE_SECONDS) as api:
        assert isinstance(await api.post_model(model), Taken)
