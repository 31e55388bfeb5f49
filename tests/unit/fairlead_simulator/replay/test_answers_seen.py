from fairlead_simulator.replay.sending import StreamedAnswer

ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"delta":{"content":"tok "}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}\n\ndata: [DONE]\n\n'


def seen(*pieces: bytes, status: int = 200) -> tuple[StreamedAnswer, list[float]]:
    times: list[float] = []
    answer = StreamedAnswer(lambda: float(len(times)))
    answer.status = status
    for piece in pieces:
        answer.on_piece(piece)
        times.append(0.0)
    return answer, times


def test_the_first_token_is_the_first_content_not_the_role() -> None:
    answer, _ = seen(ROLE, WORD, WORD)
    assert answer.first_token_at == 1.0


def test_an_event_cut_in_two_counts_when_its_content_arrived() -> None:
    answer, _ = seen(ROLE, WORD[:30], WORD[30:])
    assert answer.first_token_at == 2.0


def test_usage_and_completeness_are_read_from_the_end_of_a_long_stream() -> None:
    answer, _ = seen(ROLE, *[WORD] * 3000, USAGE[:30], USAGE[30:])
    assert answer.complete
    assert answer.usage() == (9, 4, 2)


def test_a_stream_that_ends_early_or_with_an_error_is_a_failure() -> None:
    assert not seen(ROLE, WORD)[0].complete
    assert seen(ROLE, WORD)[0].failure_reason() == "stream-incomplete"
    assert seen(ROLE, b'data: {"error":{"message":"lost"}}\n\n')[0].failure_reason() == "stream-error"
    assert seen(b"{}", status=500)[0].failure_reason() == "http-500"
    assert seen(WORD, status=500)[0].first_token_at is None


def test_a_refusal_names_its_reason_by_header_or_status() -> None:
    answer, _ = seen(b"{}", status=429)
    assert answer.rejected
    assert answer.rejection_reason() == "http-429"
    assert answer.retry_after_seconds() == 1.0
    answer.headers[b"x-fairlead-rejection"] = b"overloaded"
    answer.headers[b"retry-after"] = b"3"
    assert (answer.rejection_reason(), answer.retry_after_seconds()) == ("overloaded", 3.0)
    answer.headers[b"x-llm-d-request-dropped-reason"] = b"slo-unreachable"
    assert answer.rejection_reason() == "slo-unreachable"
    answer.headers[b"retry-after"] = b"soon"
    assert answer.retry_after_seconds() == 1.0
