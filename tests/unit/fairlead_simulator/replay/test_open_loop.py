"""Requests that the open loop sends, row by row."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from fairlead_simulator.replay.http_client import HttpClient, Origin
from fairlead_simulator.replay.open_loop import Replay, ReplaySettings
from fairlead_simulator.replay.outcomes import RequestOutcome, Tally
from fairlead_simulator.replay.prompts import BodyWriter, PromptWriter
from fairlead_simulator.replay.sending import Planned, Sender, given_up
from fairlead_simulator.traces.rows import TraceRow
from fairlead_simulator.traces.sessions import find_sessions


class Unsent(Sender):
    """A client that keeps its requests and sends none."""

    def __init__(self) -> None:
        super().__init__(HttpClient(), (Origin.parse("http://127.0.0.1:1"),), (), "x-session-id", 1.0, 0, lambda: 0.0)
        self.connected = True
        self.planned: list[Planned] = []

    async def send(self, planned: Planned) -> RequestOutcome:
        self.planned.append(planned)
        return given_up(planned)


def row(first: int, session: str | None) -> TraceRow:
    return TraceRow(timestamp_ms=0.0, input_length=1024, output_length=1, hash_ids=(first, first + 100), session=session)


async def sessions_of(rows: Sequence[TraceRow]) -> list[str]:
    sender, found = Unsent(), find_sessions(rows)
    replay = Replay(
        rows=rows,
        sessions=found,
        prompts=PromptWriter(4, found.shared),
        bodies=BodyWriter("m"),
        sender=sender,
        tally=Tally(5.0, 1.0, None),
        settings=ReplaySettings(bursts=True),
        clock=count().__next__,
    )
    await replay.run(repeat=False)
    return [planned.session for planned in sender.planned]


async def test_a_rows_own_session_is_sent_as_a_header_can_carry_it() -> None:
    assert await sessions_of([row(1, "a"), row(1, "b"), row(2, "a"), row(3, "ä\r\nx: y")]) == [
        "trace-a",
        "trace-b",
        "trace-a",
        "trace-%C3%A4%0D%0Ax%3A%20y",
    ]


async def test_a_row_without_a_session_has_an_inferred_one() -> None:
    again = replace(row(1, None), timestamp_ms=50.0)
    assert await sessions_of([row(1, None), row(2, None), again]) == ["trace-t1", "trace-t2", "trace-t1"]
