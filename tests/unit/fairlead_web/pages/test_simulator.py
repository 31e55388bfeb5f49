"""The simulator's pages: run, progress, results, comparison, and a plan that is not applied."""

import re
from dataclasses import replace

import pytest

from fairlead_client.resources.plans import PlanState
from fairlead_client.resources.simulations import SimulatedPolicy, SimulationRequest, SimulationState
from fairlead_testing.fakes.public_data.loads import CHAT
from fairlead_testing.running.web_client import ORIGIN, Visitor, visitor
from fairlead_web.drawing.simulation_tables import rate_tables

POOL = "/pools/default/chat/simulator"


async def simulated(one: Visitor, looks: int = 3, **fields: str) -> str:
    """Ask for a simulation, poll it until it is done, and return its path."""
    answer = await one.submit(POOL, page=POOL, **{"policy": "now", "lines": "fairlead\nleast-loaded", "rates": "1 2", **fields})
    assert answer.status_code == 303, answer.text
    path = answer.headers["location"].partition("?")[0]
    for _ in range(looks):
        await one.http.get(path)
    return path


def region(name: str = "progress") -> dict[str, str]:
    return {"hx-request": "true", "fairlead-regions": name}


async def test_a_simulation_shows_its_progress_then_brings_the_whole_page() -> None:
    async with visitor() as operator:
        path = await simulated(operator, looks=0)
        first = await operator.http.get(path, headers=region())
        assert 'value="72000"' in first.text
        assert "csrf" not in first.text
        assert 'hx-trigger="every 1s"' in first.text
        await operator.http.get(path)
        await operator.http.get(path)
        ended = await operator.http.get(path, headers=region("progress notices"))  # not the answer kept for a second
        assert (ended.status_code, ended.headers["hx-redirect"]) == (204, path)
        page = (await operator.http.get(path)).text
        assert page.count("times the rate</h2>") == 2
        assert "every 1s" not in page


async def test_differences_have_the_sign_of_what_changed_and_say_which_is_better() -> None:
    async with visitor("admin") as admin:
        path = await simulated(admin)
        (found,) = admin.fake.simulations.known.values()
        page = (await admin.http.get(path)).text
        for one in found.results:
            if one.attainment_change:
                sign = "+" if one.attainment_change > 0 else "−"
                assert f"{sign}{abs(one.attainment_change) * 100:.1f}</span>" in page
        assert page.count(">best</span>") == 2, "the same policy at both rates"
        assert f"<strong>{found.policies[found.winner or 0].policy}" in page


async def test_the_plan_of_the_winner_is_open_and_changes_nothing() -> None:
    async with visitor("admin") as admin:
        path = await simulated(admin)
        answer = await admin.submit(f"{path}/plan", page=path)
        (plan,) = admin.fake.book.plans.values()
        assert answer.headers["location"] == f"/plans/{plan.id}"
        assert plan.state is PlanState.OPEN
        assert admin.fake.book.applied == []


async def test_another_policy_than_the_winner_can_be_planned() -> None:
    async with visitor("admin") as admin:
        path = await simulated(admin)
        await admin.submit(f"{path}/plan", page=path, policy="2")
        (plan,) = admin.fake.book.plans.values()
        assert any(step.get("after") == "least-loaded" for step in plan.diff)


async def test_the_same_seed_gives_the_same_numbers_and_two_runs_are_compared() -> None:
    async with visitor() as operator:
        first = await simulated(operator)
        form = (await operator.http.get(f"{POOL}?again=sim-0001")).text
        assert 'name="seed" value="0"' in form
        again = await simulated(operator)
        page = (await operator.http.get(f"{again}?with=sim-0001")).text
        table = page.split('id="compared"')[1].split("</table>")[0]
        assert re.findall(r'class="delta[^"]*"[^>]*>([^<]*)<', table) == ["±0"] * 7 * 6
        assert "Both had the same traffic" in page
        other = await simulated(operator, seed="5")
        page = (await operator.http.get(f"{other}?with=sim-0001")).text
        mine, theirs = (operator.fake.simulations.known[name].results[0].attainment for name in ("sim-0003", "sim-0001"))
        table = page.split('id="compared"')[1]
        assert ("+" if mine > theirs else "−") + f"{abs(mine - theirs) * 100:.1f}" in table.split("</tr>")[1]
        assert "Seed: 5 here, 0 there" in page
        assert first != again


async def test_the_command_names_all_that_the_numbers_depend_on() -> None:
    async with visitor() as operator:
        path = await simulated(operator, lines='ear: {"cooldown_seconds": 60}')
        page = (await operator.http.get(path)).text
        assert "--policy &#39;ear:{&#34;cooldown_seconds&#34;:60}&#39; --rate 1 --rate 2" in page
        assert "--from 2026-11-21T09:00:00Z --to 2026-11-21T10:00:00Z --replicas 8 --seed 0" in page


async def test_a_running_simulation_is_cancelled_and_stays_so() -> None:
    async with visitor() as operator:
        path = await simulated(operator, looks=1)
        assert (await operator.submit(f"{path}/cancel", page=path)).headers["location"] == path
        assert operator.fake.simulations.known["sim-0001"].state is SimulationState.CANCELLED
        assert "It was cancelled" in (await operator.http.get(path)).text


@pytest.mark.parametrize(
    ("fields", "words"), [({"rates": "fast"}, "rates"), ({"rates": "500"}, "Write 0.01 to 100"), ({"lines": "ear: 3"}, "per line")]
)
async def test_a_refusal_keeps_what_was_typed(fields: dict[str, str], words: str) -> None:
    async with visitor() as operator:
        answer = await operator.submit(POOL, page=POOL, **{"policy": "ear", "seed": "77", **fields})
        assert answer.status_code == 422
        assert words in answer.text
        assert 'name="seed" value="77"' in answer.text
        assert re.search(r'value="ear" checked', answer.text)
        assert not re.search(r'value="now" checked', answer.text)


async def test_an_upload_is_simulated_and_its_bad_rows_are_named() -> None:
    async with visitor() as operator:
        rows = [f'{{"timestamp": {at}, "input_length": 3, "output_length": 1, "hash_ids": [1]}}' for at in (1, 2, 3)]
        content = "\n".join([rows[0], "oops", *rows[1:]]).encode()
        token = operator.form_token((await operator.http.get(POOL)).text)
        answer = await operator.http.post(
            POOL,
            data={"csrf": token, "policy": "now"},
            files={"trace": ("mine.jsonl", content)},
            headers={"sec-fetch-site": "same-origin", "origin": ORIGIN},
        )
        (asked,) = operator.fake.simulations.asked
        assert len(asked.trace or []) == 3
        page = (await operator.http.get(answer.headers["location"])).text
        assert "1 row was left out of the upload" in page
        assert "line 2: not a row in Mooncake" in page


async def test_what_is_too_large_is_refused_before_it_is_kept() -> None:
    async with visitor() as operator:
        files = {"trace": ("mine.jsonl", b"x" * (33 << 20))}
        answer = await operator.http.post(POOL, data={"csrf": "x"}, files=files, headers={"sec-fetch-site": "same-origin"})
        assert (answer.status_code, "larger than 32 MiB" in answer.text) == (413, True)


async def test_who_may_not_is_told_and_refused() -> None:
    async with visitor() as operator:
        path = await simulated(operator)
        page = (await operator.http.get(path)).text
        assert "This needs the role admin" in page
        refused = await operator.submit(f"{path}/plan", page=path)
        assert (refused.status_code, "needs" in refused.text) == (403, True)
    async with visitor("viewer") as viewer:
        page = (await viewer.http.get(POOL)).text
        assert "This needs the role operator" in page
        assert re.search(r'<button class="primary" +disabled>Simulate', page)


async def test_a_simulation_is_found_by_its_id_alone() -> None:
    async with visitor() as operator:
        path = await simulated(operator)
        assert (await operator.http.get("/simulator/sim-0001")).headers["location"] == path
        assert (await operator.http.get("/simulator/none")).status_code == 404
        assert (await operator.http.get(f"{POOL}/none")).status_code == 404


async def test_the_policy_form_leads_to_the_simulator() -> None:
    async with visitor() as operator:
        page = (await operator.http.get("/pools/default/chat")).text
        assert f'<a href="{POOL}">Try policies' in page


async def test_a_policy_that_was_simulated_alone_is_not_the_best_and_one_without_results_moves_no_other() -> None:
    policies = [SimulatedPolicy(policy=name) for name in ("dualmap", "fairlead", "ear")]
    async with visitor("admin") as admin:
        alone = admin.fake.simulations.simulated(CHAT, SimulationRequest(policies=policies[:1], rates=[1.0], seed=1))
        page = (await admin.http.get(f"/pools/{CHAT}/simulator/{alone.id}")).text
        assert ">best</span>" not in page
        assert "was simulated alone" in page
        three = admin.fake.simulations.simulated(CHAT, SimulationRequest(policies=policies, rates=[1.0], seed=1))
        stopped = replace(three, results=three.results[1:], winner=2)
    (table,) = rate_tables(stopped)
    assert [(row.policy, row.place, row.won) for row in table.rows] == [("fairlead", 1, False), ("ear", 2, True)]
