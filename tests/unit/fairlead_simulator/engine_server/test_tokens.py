import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_simulator.engine_server.request_errors import RequestInvalid
from fairlead_simulator.engine_server.tokens import ByteTokenizer

TEXTS = st.text(max_size=60)


@given(TEXTS, st.integers(1, 7))
def test_every_text_comes_back_from_its_ids(text: str, width: int) -> None:
    tokenizer, prompt = ByteTokenizer(width), text.encode()
    ids = tokenizer.ids(prompt)
    assert len(ids) == tokenizer.count(prompt) == len(tokenizer.pieces(prompt))
    assert tokenizer.prompt(ids, "prompt") == prompt
    assert tokenizer.text(prompt) == text


@given(TEXTS, TEXTS)
def test_ids_put_together_keep_their_number_and_their_text(one: str, other: str) -> None:
    tokenizer = ByteTokenizer(4)
    ids = tokenizer.ids(one.encode()) + tokenizer.ids(other.encode())
    prompt = tokenizer.prompt(ids, "prompt")
    assert tokenizer.count(prompt) == len(ids)
    assert tokenizer.text(prompt) == one + other


@given(TEXTS)
def test_ids_of_four_bytes_fit_thirty_two_bits(text: str) -> None:
    assert all(0 <= number < 1 << 32 for number in ByteTokenizer(4).ids(text.encode()))


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (-1, "should be a token id, not -1"),
        (1 << 32, "out of vocabulary"),
        ("a", "token id"),
        (True, "token id"),
        (0xFFFFFFFF, "out of vocabulary"),
    ],
)
def test_what_is_no_token_is_refused(number: object, message: str) -> None:
    with pytest.raises(RequestInvalid, match=message):
        ByteTokenizer(4).prompt([1, number], "prompt")


def test_tokens_too_wide_for_exact_ids_are_counted_but_have_none() -> None:
    wide = ByteTokenizer(64)
    assert wide.count(b"x" * 65) == 2
    with pytest.raises(RequestInvalid, match="--bytes-per-token of at most 7") as caught:
        wide.ids(b"x")
    assert caught.value.status == 501
