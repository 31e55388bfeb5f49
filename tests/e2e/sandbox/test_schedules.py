"""A schedule's window that opens at run time scales the pool and changes its SLO; its end reverts both."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead_testing.builders.sandbox_pools import TTFT_SECONDS, pool
from fairlead_testing.running.sandbox import RunningSandbox, until

OWN_TTFT_SECONDS = int(TTFT_SECONDS * 1000) / 1000


def test_a_window_scales_the_pool_changes_its_slo_and_takes_both_back(sandbox: RunningSandbox) -> None:
    roles = [{"name": "both", "minReplicas": 1, "maxReplicas": 4}]
    sandbox.apply_pool(pool("timed", replicas=1, roles=roles)).raise_for_status()
    sandbox.until_ready("timed", 1)
    opens = (datetime.now(UTC) + timedelta(seconds=5)).replace(microsecond=0)
    start = opens.strftime("%Y-%m-%dT%H:%M:%SZ")
    window = {
        "name": "rush",
        "cron": "0 0 29 2 *",
        "duration": "1h",
        "runAt": [start],
        "roles": [{"name": "both", "replicas": 3}],
        "slo": {"ttft": "1s"},
        "earlyRejection": {"mode": "Load"},
    }
    sandbox.apply_pool(pool("timed", replicas=1, roles=roles, scaling={"schedules": [window]})).raise_for_status()

    def serving() -> int:
        return int(sandbox.pool("timed").get("status", {}).get("serving", 0))

    def slo() -> Any:
        return sandbox.everything("/v1/pools/default/timed/slo")[0]["ttft_seconds"]

    until(lambda: serving() == 3, "three instances serve")
    until(lambda: slo() == 1.0, "the SLO of the window")
    assert sandbox.pool("timed")["spec"]["replicas"] == 1
    [line] = sandbox.pool("timed")["status"]["schedules"]
    assert line["opened"] == start
    # the window's rest is skipped, so that the test need not wait for its end
    skipped = window | {"skip": [start]}
    sandbox.apply_pool(pool("timed", replicas=1, roles=roles, scaling={"schedules": [skipped]})).raise_for_status()
    until(lambda: serving() == 1 and slo() == OWN_TTFT_SECONDS, "one instance and the pool's own SLO again")
    [run] = until(lambda: sandbox.everything("/v1/schedule-runs", pool="default/timed", outcome="closed"), "the run is recorded")
    assert (run["schedule"], run["start"], run["outcome"], run["reason"]) == ("rush", start, "closed", "skip")

    def reasons() -> set[str]:
        return {event["reason"] for event in sandbox.everything("/v1/pools/default/timed/events")}

    until(lambda: {"WindowOpened", "WindowClosed", "ScalingUp", "ScalingDown"} <= reasons(), "each step has its event")
