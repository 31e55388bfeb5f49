from fairlead_simulator.replay.command import state_line
from fairlead_simulator.replay.outcomes import ReplayVerdict, RequestOutcome, Tally


def test_the_state_is_told_in_one_line() -> None:
    tally = Tally(5.0, time_scale=10.0)
    assert state_line(tally, 0, None) == "sent 0  served 0  rejected 0  failed 0  cancelled 0  in flight 0"
    for _ in range(3):
        tally.send()
    tally.end(RequestOutcome(index=0, session="s", due_seconds=0, lag_seconds=0, verdict=ReplayVerdict.SERVED, ttft_seconds=0.25))
    assert state_line(tally, 2, 9) == "sent 3/9  served 1  rejected 0  failed 0  cancelled 0  in flight 2  TTFT p50 2.500 s"
