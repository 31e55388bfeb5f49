"""Known blocks of prompts, found by the tokens of earlier prompts, for each way in which engines write tokens."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from fairlead.kv_events.block_keys import block_keys
from fairlead_router.kv_events.known_prompts import NOTHING_KNOWN, UNSURE_TOKENS, KnownPrompts, PromptText, aligned
from fairlead_router.kv_events.prompt_texts import CHAT, COMPLETIONS, question, token_ids
from fairlead_testing.examples import examples

BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
GPT2 = {byte: chr(byte) for byte in BYTES} | {byte: chr(0x100 + place) for place, byte in enumerate(sorted(set(range(256)) - set(BYTES)))}


def tokens(text: bytes, width: int = 4) -> list[bytes]:
    return [text[at : at + width] for at in range(0, len(text), width)]


def ids(pieces: list[bytes]) -> list[int]:
    return [crc32(piece) for piece in pieces]


def as_bytes(pieces: list[bytes]) -> list[str]:
    """Return the tokens as byte-level tokenizers write them (GPT-2, Llama 3, Qwen)."""
    return ["".join(GPT2[byte] for byte in piece) for piece in pieces]


def as_pieces(pieces: list[bytes]) -> list[str]:
    """Return the tokens as SentencePiece writes them, where a byte that is no character stands as its number."""
    return [piece.decode().replace(" ", "▁") if piece != b"\n" else "<0x0A>" for piece in pieces]


def prompt_text(path: str, document: Mapping[str, Any]) -> PromptText:
    made = question(path, document)
    assert made is not None
    return made.prompt


def completion(text: str) -> PromptText:
    return prompt_text(COMPLETIONS, {"prompt": text})


def test_texts_are_found_in_the_bytes_of_tokens_whatever_wording() -> None:
    pieces = [b"<s>", b"user", b"\n", b"What ", b"is", b" this", b"?", b"<e>", b"an", b"swer"]
    texts = [b"What is this?", b"answer"]
    for strings in (as_bytes(pieces), as_pieces(pieces), [piece.decode() for piece in pieces]):
        assert aligned(texts, strings) == ([8, 24], [3, 7, 8, 13, 15, 20, 21, 24, 26, 30])
    assert aligned([b"What is that?"], as_bytes(pieces)) is None


def test_letters_of_several_bytes_are_found_by_their_bytes() -> None:
    text = "Grüße aus 東京, " * 30
    pieces = tokens(text.encode(), 3)
    assert aligned([text.encode()], as_bytes(pieces)) == ([0], [*range(3, len(text.encode()), 3), len(text.encode())])


def test_a_special_token_of_other_letters_moves_nothing() -> None:
    strings = ["<｜begin▁of▁text｜>", *as_bytes([b"hello ", b"world"])]
    found = aligned([b"hello world"], strings)
    assert found is not None
    (begin,), ends = found
    assert [ends[1] - begin, ends[2] - begin] == [6, 11]


def test_a_prompt_that_was_learnt_is_known_whole() -> None:
    text = "some words " * 100
    pieces = tokens(text.encode())
    known = KnownPrompts(16)
    assert known.find(completion(text)) is NOTHING_KNOWN
    assert known.learn(completion(text), ids(pieces), as_bytes(pieces))
    found = known.find(completion(text))
    assert found.whole and found.tokens == len(pieces) and found.size == len(text)
    assert found.blocks == block_keys(ids(pieces), 16)


@examples(60)
@given(shared=st.integers(0, 3_000), own=st.integers(1, 1_000), other=st.integers(0, 1_000))
def test_of_a_prompt_that_begins_alike_no_more_is_known_than_is_true(shared: int, own: int, other: int) -> None:
    first, second = "a" * shared + "b" * own, "a" * shared + "c" * other
    known = KnownPrompts(16)
    pieces = tokens(first.encode())
    known.learn(completion(first), ids(pieces), as_bytes(pieces))
    found = known.find(completion(second))
    truth = block_keys(ids(tokens(second.encode())), 16)
    assert found.blocks == truth[: len(found.blocks)]
    assert len(found.blocks) >= (shared // 256 * 256 // 4 - UNSURE_TOKENS) // 16
    assert found.size <= shared and not found.whole


def test_roles_and_the_templates_arguments_are_part_of_a_prompt() -> None:
    words = "long enough to be a chunk " * 20
    document = {"messages": [{"role": "system", "content": words}, {"role": "user", "content": "hi"}]}
    made = prompt_text(CHAT, document)
    pieces = [b"<system>", *tokens(words.encode()), b"<user>", b"hi", b"<answer>"]
    known = KnownPrompts(16)
    assert known.learn(made, ids(pieces), as_bytes(pieces))
    assert known.find(made).whole and known.find(made).tokens == len(pieces)

    longer = prompt_text(CHAT, {"messages": [*document["messages"], {"role": "assistant", "content": "hello"}]})
    assert known.find(longer).size == made.size and not known.find(longer).whole
    for other in (
        {"messages": [{"role": "user", "content": words}]},
        {**document, "chat_template_kwargs": {"thinking": False}},
        {**document, "tools": [{"type": "function"}]},
        {**document, "cache_salt": "tenant"},
    ):
        assert known.find(prompt_text(CHAT, other)) is NOTHING_KNOWN


def test_tokens_that_do_not_fit_their_texts_are_known_for_the_whole_prompt_alone() -> None:
    text = "some words " * 100
    known = KnownPrompts(16)
    assert not known.learn(completion(text), range(200), ["?"] * 200)
    assert known.find(completion(text)).blocks == block_keys(range(200), 16)
    assert known.find(completion(text + "more")) is NOTHING_KNOWN


def test_what_was_not_used_for_long_is_forgotten() -> None:
    known = KnownPrompts(16, most_chunks=40)
    for number in range(100):
        text = f"{number} " * 400
        pieces = tokens(text.encode())
        known.learn(completion(text), ids(pieces), as_bytes(pieces))
    assert len(known) <= 40 and known.find(completion("99 " * 400)).whole
    assert known.find(completion("0 " * 400)) is NOTHING_KNOWN


def test_token_ids_that_the_client_sent_are_taken_as_they_are() -> None:
    assert token_ids(COMPLETIONS, {"prompt": [1, 2, 3]}) == [1, 2, 3]
    for prompt in ("text", [], [[1, 2]], [1, True], ["a"]):
        assert token_ids(COMPLETIONS, {"prompt": prompt}) is None
    assert token_ids(CHAT, {"prompt": [1]}) is None


def test_ends_grow_with_every_token() -> None:
    found = aligned([b"a b"], ["a", "▁b"])
    assert found is not None
    _, ends = found
    assert all(before <= after for before, after in pairwise(ends)) and ends == [1, 3]
