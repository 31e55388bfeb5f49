"""A person who plans, applies and undoes changes during faults, and a check that each plan was applied completely or
not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import psycopg
from benchmarks.crashes.facts import POOL

from fairlead_client.client import ControlApi
from fairlead_client.problems import ApiProblem, ApiUnreachable
from fairlead_client.resources.plans import ApplyRequest, PlanState
from fairlead_testing.running.operator_process import POOLS
from processkube.testing.clients import KubernetesClient

PAUSE_SECONDS = 1.0


@dataclass(slots=True)
class Planning:
    """A simulated person who scales the pool up and down. A request without an answer is repeated. Every third change
    is the undoing of the change before.
    """

    urls: list[str]
    token: str
    applied: int = 0
    lost_answers: int = 0
    refusals: Counter[str] = field(default_factory=Counter)

    async def go_on(self, until: asyncio.Event) -> None:
        async with ControlApi(self.urls, self.token, timeout_seconds=10) as api:
            while not until.is_set():
                try:
                    await self._one(api)
                except (ApiProblem, ApiUnreachable) as error:
                    self._note(error)
                await asyncio.sleep(PAUSE_SECONDS)

    async def _one(self, api: ControlApi) -> None:
        wanted = 3 if self.applied % 2 else 4
        plan = await api.create_scale_plan(POOL, wanted)
        await self._applied(api, plan.id)
        if self.applied % 3 == 0:
            back = await api.undo_plan(plan.id)
            await self._applied(api, back.id)

    async def _applied(self, api: ControlApi, plan_id: str) -> None:
        """Apply the plan, repeating the request until it is answered."""
        while True:
            try:
                plan = await api.apply_plan(plan_id, ApplyRequest(confirm=POOL.name, reason="benchmark"))
            except (ApiProblem, ApiUnreachable) as error:
                if isinstance(error, ApiProblem) and not error.retryable:
                    raise
                self.lost_answers += 1
                await asyncio.sleep(0.5)
                continue
            if plan.state is PlanState.APPLIED:
                self.applied += 1
            return

    def _note(self, error: ApiProblem | ApiUnreachable) -> None:
        self.refusals[error.problem.type if isinstance(error, ApiProblem) else "no answer"] += 1


def half_applied(url: str, kubeconfig: str, generation_before: int) -> list[str]:
    """Return a sentence for each contradiction between the pool's object, the plans and the audit log."""
    client = KubernetesClient.of(kubeconfig)
    found = client.call("GET", f"{POOLS}/{POOL.name}")
    changes = found["metadata"]["generation"] - generation_before
    with psycopg.connect(url) as connection:

        def count(query: str) -> int:
            row = connection.execute(query.encode()).fetchone()
            return 0 if row is None else int(row[0])

        audited_plans = "FROM audit_log WHERE action IN ('plan.applied', 'plan.undone') AND result = 'ok'"
        applied = count("SELECT count(*) FROM plans WHERE applied_at IS NOT NULL")
        audited = count(f"SELECT count(*) {audited_plans}")
        twice = count(f"SELECT count(*) FROM (SELECT plan {audited_plans} GROUP BY plan HAVING count(*) > 1) doubled")
        undone = count("SELECT count(*) FROM plans WHERE state = 'undone'")
        undoing = count("SELECT count(*) FROM plans WHERE undo_of IS NOT NULL AND applied_at IS NOT NULL")
    facts = {
        f"the object changed {changes} times, {applied} plans were applied": changes == applied,
        f"{applied} plans were applied, {audited} are in the audit log": applied == audited,
        f"{twice} plans are in the audit log twice": twice == 0,
        f"{undone} plans were undone, {undoing} undo another": undone == undoing,
    }
    return [words for words, good in facts.items() if not good]
