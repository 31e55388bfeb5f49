"""Models' cards as engines write them, and the values that hold for all engines of a pool."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_router.engines.model_cards import MOST_CARDS, aliases_of, merged, read_cards


def _card(name: str, root: str = "/models/qwen", parent: str | None = None, **more: object) -> dict[str, object]:
    return {"id": name, "object": "model", "root": root, "parent": parent, **more}


def _list(*cards: object) -> bytes:
    return orjson.dumps({"object": "list", "data": cards})


def test_cards_are_kept_by_their_ids() -> None:
    cards = [_card("qwen", max_model_len=32768), _card("sql", root="/adapters/sql", parent="qwen")]
    assert read_cards(_list(*cards)) == {"qwen": cards[0], "sql": cards[1]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "data", "root", "parent", "created"]), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(JSON.map(orjson.dumps) | st.lists(JSON, max_size=4).map(lambda data: orjson.dumps({"data": data})) | st.binary(max_size=50))
def test_an_engine_may_say_anything(answer: bytes) -> None:
    cards = read_cards(answer)
    assert all(card["id"] == name for name, card in cards.items())
    aliases_of("a", [cards, cards])
    assert merged(list(cards.values())).keys() <= {field for card in cards.values() for field in card}


def test_what_an_engine_says_is_bounded_in_number_and_size() -> None:
    assert len(read_cards(_list(*(_card(f"m{number}") for number in range(10_000))))) == MOST_CARDS
    assert read_cards(_list(_card("long", note="x" * 20_000), _card("n" * 600), _card("fine"))).keys() == {"fine"}
    deep = b'{"data": [{"id": "deep", "x": ' + b"[" * 500 + b"]" * 500 + b"}]}"
    assert read_cards(deep) == {}


def test_of_several_engines_what_they_agree_on_counts_and_the_smallest_context() -> None:
    def permission(made: str, *, sampling: bool = True) -> list[dict[str, object]]:
        return [{"id": made, "created": len(made), "allow_sampling": sampling}]

    first = _card("m", max_model_len=32768, created=7, owned_by="vllm", permission=permission("p1"), quantization="fp8", only_here=1)
    second = _card("m", max_model_len=8192, created=5, owned_by="vllm", permission=permission("p22"), quantization="int4")
    assert merged([first]) == first
    assert merged([first, second]) == _card("m", max_model_len=8192, created=5, owned_by="vllm", permission=permission("p1"))
    assert "permission" not in merged([first, {**second, "permission": permission("p1", sampling=False)}])
    assert merged([]) == {}


@pytest.mark.parametrize("told", [None, "32768", True, -1, 0, 2**60, [1]])
def test_a_context_length_that_is_none_is_not_passed_on(told: object) -> None:
    assert "max_model_len" not in merged([_card("m", max_model_len=told)])
    assert merged([_card("m", max_model_len=told), _card("m", max_model_len=4096)])["max_model_len"] == 4096


def test_aliases_are_the_names_of_one_root_that_every_engine_with_the_model_tells() -> None:
    both = read_cards(
        _list(_card("qwen"), _card("gpt-4"), _card("chat"), _card("sql", parent="qwen"), _card("other", root="/models/other"))
    )
    one = read_cards(_list(_card("gpt-4"), _card("qwen")))
    without = read_cards(_list(_card("llama", root="/models/llama")))
    assert aliases_of("qwen", [both]) == {"gpt-4", "chat"}
    assert aliases_of("qwen", [both, one]) == {"gpt-4"}
    assert aliases_of("qwen", [both, without]) == {"gpt-4", "chat"}
    assert aliases_of("qwen", [without]) == aliases_of("qwen", []) == frozenset()
