"""The demo's faults can be mended: its pool can compute all of its prompts."""

from itertools import pairwise

from fairlead.pools import parse_spec
from fairlead_sandbox.demo import LONGEST_PROMPT, TIME_SCALE, demo_pool, load_arguments
from fairlead_simulator.replay.command import generated_rows


def test_every_prompt_of_the_demo_is_computed_well_within_its_target() -> None:
    facts = parse_spec(demo_pool(8000)["spec"]).facts()
    seconds = LONGEST_PROMPT / (facts.engine.prefill_tokens_per_second * TIME_SCALE)
    assert seconds < 0.7 * facts.slo.ttft_seconds
    arguments = dict(pairwise(load_arguments(["http://router"])))
    assert arguments["--longest-input"] == str(LONGEST_PROMPT)
    rows = generated_rows(5000, int(arguments["--seed"]), float(arguments["--rate"]), None, LONGEST_PROMPT)
    assert max(row.input_length for row in rows) <= LONGEST_PROMPT
    assert max(row.input_length for row in generated_rows(5000, 7, 3.0, None, None)) > 100_000
