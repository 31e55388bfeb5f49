"""Selectors, compared with a plain implementation of their definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.objects.errors import BadRequest
from processkube.kubernetes_api.objects.selectors import parse_field_selector, parse_label_selector, selector_of_object
from processkube.kubernetes_api.storing.representations import selector_text
from processkube.testing.examples import examples

Term = tuple[str, str, list[str]]
keys = st.sampled_from(["app", "tier", "acme.dev/pool"])
words = st.sampled_from(["a", "b", "c-d", "x_1"])
labels = st.dictionaries(keys, words, max_size=3)
expressions = st.tuples(keys, st.sampled_from(["In", "NotIn"]), st.lists(words, min_size=1, max_size=2))
terms: st.SearchStrategy[Term] = st.one_of(
    st.tuples(keys, st.sampled_from(["=", "==", "!="]), words.map(lambda word: [word])),
    st.tuples(keys, st.sampled_from(["in", "notin"]), st.lists(words, min_size=1, max_size=3)),
    st.tuples(keys, st.sampled_from(["exists", "absent"]), st.just([])),
)


def spell(term: Term, space: str) -> str:
    key, operator, values = term
    match operator:
        case "exists":
            return key
        case "absent":
            return f"!{space}{key}"
        case "in" | "notin":
            return f"{key} {operator} ({(',' + space).join(values)})"
    return f"{key}{space}{operator}{space}{values[0]}"


def means(term: Term, found: dict[str, str]) -> bool:
    key, operator, values = term
    match operator:
        case "exists":
            return key in found
        case "absent":
            return key not in found
        case "!=" | "notin":
            return found.get(key) not in values
    return found.get(key) in values


@examples(200)
@given(st.lists(terms, max_size=4), labels, st.sampled_from(["", " "]))
def test_a_selector_matches_exactly_when_all_its_terms_hold(chosen: list[Term], found: dict[str, str], space: str) -> None:
    text = f",{space}".join(spell(term, space) for term in chosen)
    selector = parse_label_selector(text)
    assert selector.matches(found) == all(means(term, found) for term in chosen)
    label = selector.label()
    assert not selector.matches(found) or label is None or found[label[0]] == label[1]


@examples(100)
@given(st.dictionaries(keys, words, max_size=2), st.lists(expressions, max_size=2), labels)
def test_the_text_of_a_selector_object_means_the_same(equal: dict[str, str], chosen: list[Term], found: dict[str, str]) -> None:
    selector = {
        "matchLabels": equal,
        "matchExpressions": [{"key": key, "operator": name, "values": values} for key, name, values in chosen],
    }
    direct = selector_of_object(selector)
    assert parse_label_selector(selector_text(selector)).matches(found) == direct.matches(found)


def test_no_selector_object_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selector_of_object(None).matches({})
    assert selector_of_object({}).matches({"app": "a"})


def test_a_term_with_an_operator_that_is_none_matches_nothing() -> None:
    selector = selector_of_object({"matchExpressions": [{"key": "app", "operator": "in", "values": ["a"]}]})
    assert not selector.matches({"app": "a"})


@pytest.mark.parametrize("text", ["a=(b", "=x", "a in b", "a,,b", "Not a key=x", "a b"])
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_label_selector(text)


def test_numbers_compare_with_less_and_greater() -> None:
    selector = parse_label_selector("weight>5,weight<9")
    assert [selector.matches({"weight": value}) for value in ("5", "6", "9", "many")] == [False, True, False, False]


def test_an_empty_field_value_means_unset() -> None:
    selector = parse_field_selector("spec.nodeName=", ["spec.nodeName"])
    assert selector.matches({"spec": {}})
    assert not selector.matches({"spec": {"nodeName": "n1"}})
