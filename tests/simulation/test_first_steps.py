"""The pool of the first steps in docs/ten-minutes.md keeps the SLO that the page promises, on any machine."""

import re
import shlex
from itertools import islice
from pathlib import Path

import orjson
import yaml
from click.testing import CliRunner

from fairlead.pools import parse_spec
from fairlead_simulator.replay.command import replay
from fairlead_simulator.simulate_command import simulate
from fairlead_simulator.traces.rows import write_trace
from fairlead_simulator.workloads import ConversationShape, generate_conversations

ROOT = Path(__file__).parents[2]
MARGIN = 0.05
"""Share of the requests above the pool's own goal, as a reserve for a busy machine."""


def test_the_replay_before_the_wait_for_the_slo_meets_both_targets_with_a_margin(tmp_path: Path) -> None:
    steps = (ROOT / "docs" / "ten-minutes.md").read_text()
    command = re.search(r"^\$ fairlead replay (.+)$", steps, re.MULTILINE)
    assert command is not None
    assert command.start() < steps.index("--for=condition=SLOMet")
    given = replay.make_context("replay", shlex.split(command[1])).params
    shape = ConversationShape(requests_per_second=given["rate"], opening_median=given["median_input"])
    trace, found = tmp_path / "trace.jsonl", tmp_path / "found.json"
    with trace.open("w") as file:
        write_trace(islice(generate_conversations(shape, given["seed"]), given["requests"]), file)
    spec = parse_spec(yaml.safe_load((ROOT / "examples" / "chat-8.yaml").read_text())["spec"])
    pool = ["--preset", "simulated", "--instances", spec.replicas, "--policies", spec.routing.policy]
    targets = ["--slo-ttft", spec.slo.ttft_seconds, "--slo-tpot", spec.slo.tpot_seconds]
    arguments = ["--trace", trace, *pool, *targets, "--rates", given["rate"], "--json", found]
    ended = CliRunner().invoke(simulate, [str(one) for one in arguments])
    assert ended.exit_code == 0, ended.output
    [row] = orjson.loads(found.read_bytes())
    assert row["attainment"] >= spec.slo.percentile / 100 + MARGIN
