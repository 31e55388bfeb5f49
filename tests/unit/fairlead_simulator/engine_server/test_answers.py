from fairlead_simulator.engine_server.answers import AnswerBook


def test_every_token_is_a_word_of_the_width_of_a_token() -> None:
    for width in (1, 2, 4, 7):
        book = AnswerBook(3, width)
        text = book.words(5, 0, 100)
        assert len(text) == 100 * width
        if width > 1:
            assert all(text[position] == ord(" ") for position in range(width - 1, len(text), width))


def test_pieces_of_an_answer_add_up_to_the_answer_even_around_the_end_of_the_stock() -> None:
    book = AnswerBook(0, 4)
    whole = book.words(4000, 0, 9000)
    assert b"".join(book.words(4000, first, first + 500) for first in range(0, 9000, 500)) == whole


def test_equal_prompts_and_seeds_get_equal_answers() -> None:
    assert AnswerBook(1, 4).start_of(b"hello") == AnswerBook(1, 4).start_of(b"hello")
    assert AnswerBook(1, 4).words(0, 0, 50) == AnswerBook(1, 4).words(0, 0, 50)
    assert AnswerBook(1, 4).words(0, 0, 50) != AnswerBook(2, 4).words(0, 0, 50)
