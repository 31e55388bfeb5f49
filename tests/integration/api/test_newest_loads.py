"""The present work of an instance: the sum of the newest load of each router."""

import random
from collections import defaultdict

import pytest

from fairlead.reports.loads import LoadSample
from fairlead_testing.running.api import CHAT, ApiInstance, a_load, a_report, a_state, an_instance

COUNTS = ("running", "waiting", "pending_prefill_tokens")


@pytest.mark.parametrize("seed", range(3))
async def test_the_newest_of_each_router_within_twenty_seconds_is_added_up(api: ApiInstance, seed: int) -> None:
    draw = random.Random(seed)
    api.clock.stop()
    now = int(api.clock().timestamp())
    await api.pool_operator.put_pool_state(CHAT, a_state(*map(an_instance, "abcd")))
    told: dict[tuple[str, str], list[tuple[int, int, LoadSample]]] = defaultdict(list)
    for number in range(6):  # of a second that is told twice, what was sent later counts
        router, loads = f"router-{number % 3}", []
        for second in range(now - 26, now):
            for instance in "abc":
                if draw.random() < 0.08:
                    values = {name: draw.randrange(900) for name in COUNTS}
                    load = a_load(instance, second, kv_usage=draw.choice([None, round(draw.random(), 3)]), **values)
                    loads.append(load)
                    if second >= now - 19:
                        told[instance, router].append((second, number, load))
        await api.router.post_report(a_report(f"{seed}-{number}", router, at=now - 10.0 + number, loads=tuple(loads)))
    newest: dict[str, list[LoadSample]] = defaultdict(list)
    for (instance, _), samples in told.items():
        newest[instance].append(max(samples, key=lambda one: one[:2])[2])
    shown = {one.id: one for one in (await api.viewer.pool(CHAT)).instances}
    for instance in "abcd":
        for name in COUNTS:
            assert getattr(shown[instance], name) == sum(getattr(one, name) for one in newest[instance])
        used = [one.kv_usage for one in newest[instance] if one.kv_usage is not None]
        assert shown[instance].kv_usage == (pytest.approx(max(used)) if used else None)
        alone = (await api.viewer.instance(CHAT, instance)).instance
        assert [getattr(alone, name) for name in COUNTS] == [getattr(shown[instance], name) for name in COUNTS]
