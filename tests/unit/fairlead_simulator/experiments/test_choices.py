"""Choices as a person writes them on the command line."""

from pathlib import Path

import pytest

from fairlead.errors import InvalidInput, UnknownName
from fairlead_simulator.experiments.choices import early_rejection_modes, notes_of, parse_belief, parse_policies, parse_rates


def test_policies_carry_typed_parameters() -> None:
    first, second = parse_policies("dualmap:slo_fraction=0.5;rebalance=false;max_examined=16, ear")
    assert (first.name, first.label) == ("dualmap", "dualmap:slo_fraction=0.5;rebalance=false;max_examined=16")
    assert first.parameters == {"slo_fraction": 0.5, "rebalance": False, "max_examined": 16}
    assert (second.name, second.parameters) == ("ear", {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dualmap:nothing=1", "remove it; the fields of policy dualmap are"),
        ("dualmap:slo_fraction=high", "a number from"),
        ("dualmap:rebalance=maybe", "true or false"),
        ("dualmap:max_examined=1.5", "a whole number"),
        ("dualmap:slo_fraction", "name:key=value"),
        ("dualmap:=1", "name:key=value"),
        ("dualmap:max_examined=1;max_examined=2", "max_examined is given twice"),
        ("ear,ear", "named twice"),
        ("", "at least one policy"),
    ],
)
def test_impossible_parameters_are_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        parse_policies(text)
    assert "\n" not in str(caught.value)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"'fastest' is unknown; known: .*dualmap"):
        parse_policies("fastest")
    with pytest.raises(UnknownName, match="known: after-prefill, disabled, load, predicted"):
        early_rejection_modes("disabled,sometimes")


def test_rates_are_numbers_or_multiples_of_saturation() -> None:
    assert parse_rates("3, 0.5x,1.25x", 8.0) == (3.0, 4.0, 10.0)


@pytest.mark.parametrize("text", ["0", "-1", "fast", "x", "nan", "inf", "1,,2", "1e7", "1e6x", "2,2"])
def test_rates_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--rates"):
        parse_rates(text, 8.0)


def test_a_belief_is_a_multiple_of_the_true_speed_or_tokens_per_second() -> None:
    assert (parse_belief("0.25x", 6250.0), parse_belief(" 4x", 6250.0), parse_belief("1562", 6250.0)) == (1562.5, 25_000.0, 1562.0)


@pytest.mark.parametrize("text", ["", "x", "0x", "-1x", "fast", "nan", "infx", "0.0001x", "1e10"])
def test_a_belief_that_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--believed-speed.*as 0\.25x"):
        parse_belief(text, 6250.0)


def test_early_rejection_modes_are_those_of_a_table() -> None:
    assert early_rejection_modes("Disabled, load,predicted,after-prefill") == ("Disabled", "Load", "Predicted", "AfterPrefill")


FILE = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: approx-prefix-cache-producer
    parameters: {lruCapacityPerServer: 31250}
  - type: prefix-cache-scorer
"""


def test_an_endpoint_picker_config_is_read_from_its_file_and_says_what_it_does_not_need(tmp_path: Path) -> None:
    path = tmp_path / "epp.yaml"
    path.write_text(FILE, encoding="utf-8")
    (choice,) = parse_policies(f"endpoint-picker:config={path}")
    assert choice.parameters["config"]["plugins"][1] == {"type": "prefix-cache-scorer"}
    (note,) = notes_of((choice,))
    assert note.startswith(f"endpoint-picker:config={path}: config.plugins[0].parameters.lruCapacityPerServer is not needed: ")
    assert notes_of(parse_policies("fairlead")) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, r"config: '.*' cannot be used; it is a file that cannot be read: No such file"),
        ("plugins: [", "config: .* name a file with one YAML object"),
        ("- type: queue-scorer", "config: .* name a file with one YAML object, not list"),
        (FILE.replace("prefix-cache-scorer", "magic-scorer"), r"config.plugins\[1\].type: 'magic-scorer' cannot be used; the types of"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_in_one_line(content: str | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "epp.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidInput, match=told) as refused:
        parse_policies(f"endpoint-picker:config={path}")
    assert "\n" not in str(refused.value)
