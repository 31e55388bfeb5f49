from math import inf
from typing import Any

import pytest

from fairlead.errors import InvalidInput, UnknownName
from fairlead.routing.policies.catalogue import BUILT_IN
from fairlead.routing.policies.dualmap import DualMapParameters
from fairlead.schemas.shapes import Shape
from fairlead.tables import RoutingFacts


def test_the_policies_of_the_sources_are_registered() -> None:
    assert {"round-robin", "least-loaded", "cache-affinity", "dualmap", "ear", "sticky", "heimdall"} <= set(BUILT_IN.names)
    assert len(set(BUILT_IN.names)) == len(BUILT_IN.names)


@pytest.mark.parametrize("name", BUILT_IN.names)
def test_each_policy_is_built_by_name_and_needs_no_parameters(name: str) -> None:
    assert BUILT_IN.build(RoutingFacts(policy=name), 1).name == name


@pytest.mark.parametrize("name", BUILT_IN.names)
def test_every_default_passes_its_own_check_and_every_parameter_is_described(name: str) -> None:
    shapes = BUILT_IN.parameters(name)
    BUILT_IN.check_parameters(name, {parameter: shape.default for parameter, shape in shapes.items()})
    assert all(shape.description.endswith(".") and len(shape.description) > 20 for shape in shapes.values())


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"policy 'magic' is unknown; known: cache-affinity, .*dualmap, .*sticky"):
        BUILT_IN.check_parameters("magic", {})


def test_an_unknown_parameter_is_refused_with_its_path_and_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"the fields of policy dualmap are .*slo_fraction") as refused:
        BUILT_IN.check_parameters("dualmap", {"slo_fracton": 1})
    assert refused.value.field == "spec.routing.parameters.slo_fracton"


@pytest.mark.parametrize(
    ("policy", "name", "value", "remedy"),
    [
        ("dualmap", "slo_fraction", "half", "write a number from 0.01 to 100"),
        ("dualmap", "slo_fraction", True, "write a number from 0.01 to 100"),
        ("dualmap", "slo_fraction", 0, "write a number from 0.01 to 100"),
        ("dualmap", "slo_fraction", float("nan"), "write a number from 0.01 to 100"),
        ("dualmap", "rebalance", "yes", "write true or false"),
        ("dualmap", "rebalance", 1, "write true or false"),
        ("dualmap", "max_examined", 2.5, "write a whole number from 1 to 10000"),
        ("dualmap", "max_examined", float("inf"), "write a whole number from 1 to 10000"),
        ("dualmap", "second_choice", "third", "write one of distinct, paper"),
        ("dualmap", "second_choice", ["paper"], "write one of distinct, paper"),
        ("ear", "cooldown_seconds", -1, "write a number of at least 0"),
        ("ear", "cooldown_seconds", {}, "write a number of at least 0"),
        ("round-robin", "queue_limit", 0, "write a whole number of at least 1"),
    ],
)
def test_a_value_of_the_wrong_type_or_out_of_bounds_names_field_and_remedy(policy: str, name: str, value: Any, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=remedy) as refused:
        BUILT_IN.check_parameters(policy, {name: value})
    assert refused.value.field == f"spec.routing.parameters.{name}"


def test_shares_and_samples_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"cold_share: 0.5 cannot be used; write at most hot_share, 0.2"):
        BUILT_IN.check_parameters("dualmap", {"hot_share": 0.2, "cold_share": 0.5})
    with pytest.raises(InvalidInput, match="hotness_min_samples: 300 cannot be used"):
        BUILT_IN.check_parameters("cache-affinity", {"hotness_min_samples": 300})


def test_whole_numbers_pass_for_numbers_and_whole_floats_for_integers() -> None:
    typed = BUILT_IN.check_parameters("dualmap", {"slo_fraction": 1, "max_examined": 64.0})
    assert isinstance(typed, DualMapParameters)
    assert (typed.slo_fraction, typed.max_examined) == (1.0, 64)
    assert isinstance(typed.max_examined, int)


def test_the_preset_decides_what_is_not_given() -> None:
    paper, code = BUILT_IN.check_parameters("dualmap", {}), BUILT_IN.check_parameters("dualmap", {"preset": "dualmap-code"})
    own = BUILT_IN.check_parameters("dualmap", {"preset": "dualmap-code", "slo_fraction": 0.7, "hot_share": 0.3})
    assert isinstance(paper, DualMapParameters)
    assert isinstance(code, DualMapParameters)
    assert isinstance(own, DualMapParameters)
    assert (paper.overload_fraction, paper.hotness().hot_share) == (1.0, None)
    assert (code.overload_fraction, code.hotness().hot_share, code.hotness().entries_per_request) == (0.5, 0.0612, 2)
    assert (own.overload_fraction, own.hotness().hot_share, own.hotness().cold_share) == (0.7, 0.3, 0.02)


def test_only_the_papers_preset_corrects_for_decodes_and_migrates_when_a_request_arrives_alone() -> None:
    found = [BUILT_IN.check_parameters("dualmap", {"preset": preset}) for preset in ("dualmap", "dualmap-paper", "dualmap-code")]
    assert BUILT_IN.check_parameters("dualmap", {}) == found[0]
    assert [(one.held_up_seconds, one.sweeps) for one in found if isinstance(one, DualMapParameters)] == [
        (inf, True),
        (3.0, False),
        (inf, True),
    ]
    own = BUILT_IN.check_parameters("dualmap", {"preset": "dualmap-paper", "sweep": True, "bottleneck_seconds": 9})
    assert isinstance(own, DualMapParameters)
    assert (own.held_up_seconds, own.sweeps) == (9.0, True)


def test_a_null_means_that_the_parameter_is_left_out_as_everywhere_in_a_spec() -> None:
    typed = BUILT_IN.check_parameters("ear", {"hot_tokens": None, "cooldown_seconds": None})
    assert typed == BUILT_IN.check_parameters("ear", {})


def test_what_may_be_written_is_told_in_words() -> None:
    assert Shape(kind="number", description="d", default=1, maximum=3.0).wanted == "a number of at most 3"
    assert Shape(kind="integer", description="d", default=1, minimum=1, maximum=10**7).wanted == "a whole number from 1 to 10000000"
    assert Shape(kind="duration", description="d", default=1, minimum=0.001, maximum=3600).wanted == "a duration from 1ms to 1h"
