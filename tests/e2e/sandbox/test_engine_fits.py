"""`fairlead engines fit --pool` against a serving pool: routers' records can be fitted to, judged and stored."""

import json
import os
from math import isfinite
from pathlib import Path

from fairlead_sandbox.secret_tokens import load_or_create
from fairlead_testing.builders.sandbox_pools import pool, replay_arguments
from fairlead_testing.running.sandbox import RunningSandbox, fairlead, result_of, until

NAME = "fitted"
REQUESTS = 300


def test_an_engine_is_fitted_to_a_pool_that_serves_and_kept_with_it(sandbox: RunningSandbox, tmp_path: Path) -> None:
    sandbox.apply_pool(pool(NAME, replicas=2)).raise_for_status()
    sandbox.until_ready(NAME, 2)
    figures = tmp_path / "replay.json"
    eight_at_a_time = replay_arguments(NAME, REQUESTS, 1000)  # else most would run beside some that have not ended
    replayed = result_of(sandbox.replay(*eight_at_a_time, "--max-in-flight", "8", "--json", str(figures)), figures)
    served = replayed["served"]
    assert served >= 0.8 * REQUESTS

    def recorded() -> list[dict[str, object]] | None:
        items: list[dict[str, object]] = sandbox.ask(f"/v1/pools/default/{NAME}/served-requests")["items"]
        return items if len(items) >= served else None

    items = until(recorded, "all served requests are recorded with how they were served")
    engine = tmp_path / "engine.yaml"
    environment = {**os.environ, "FAIRLEAD_TOKEN": load_or_create(sandbox.state.secrets).admin}
    command = ("engines", "fit", "--pool", NAME, "--url", sandbox.url("api"), "--store", "--out", str(engine), "--json")
    done = fairlead(*command, environment=environment)
    assert done.returncode == 0, done.stderr
    fit = json.loads(done.stdout)
    assert fit["source"] == f"requests of default/{NAME}"
    assert fit["engines"] == 2
    assert fit["requests"] == len(items)
    for metric in ("ttft", "tpot"):
        assert fit[metric]["requests"] >= 20, "the later half judges"
        assert isfinite(fit[metric]["mean_error"])
        assert fit[metric]["real_p50"] > 0
        assert fit[metric]["modelled_p50"] > 0
    assert fit["costs"]["decode_fixed"] + fit["costs"]["decode_per_sequence"] > 0
    assert engine.exists()
    assert sandbox.ask(f"/v1/pools/default/{NAME}/engine")["fit"]["costs"] == fit["costs"]
    sandbox.delete_pool(NAME)
