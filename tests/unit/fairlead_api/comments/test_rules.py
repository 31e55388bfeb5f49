"""The text of a comment: words of every language, but no characters that hide other text or change its direction."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_api.comments.rules import LONGEST_TEXT, text_of
from fairlead_client.resources.comments import CommentRequest


@pytest.mark.parametrize(
    "text", ["負荷\u3000テスト", "10\u202f% de plus\u00a0: d'accord", "می\u200cخواهم", "👩\u200d💻 ✔\ufe0f", "a\tb\nc", "x" * LONGEST_TEXT]
)
def test_a_text_is_taken_as_its_writer_typed_it(text: str) -> None:
    assert text_of(CommentRequest(text=f" {text}\n")) == text


@pytest.mark.parametrize("odd", ["\u202e", "\u2066", "\u200b", "\x1b", "\x00", "\u2028", "\ufeff", "\r"])
def test_a_character_that_hides_or_turns_others_is_refused_by_its_number(odd: str) -> None:
    with pytest.raises(InvalidInput, match=rf"U\+{ord(odd):04X}"):
        text_of(CommentRequest(text=f"a{odd}b"))


@pytest.mark.parametrize("text", ["", " \u3000\n", "x" * (LONGEST_TEXT + 1)])
def test_a_text_has_one_to_a_thousand_characters(text: str) -> None:
    with pytest.raises(InvalidInput, match="characters"):
        text_of(CommentRequest(text=text))
