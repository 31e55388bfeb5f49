import asyncio

import uvloop

from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engine_server.requests import Generation
from fairlead_simulator.engine_server.statistics import EngineStatistics
from fairlead_testing.waiting import PATIENCE_SECONDS


def a_generation() -> Generation:
    return Generation(prompt=b"p" * 40, input_tokens=10, output_tokens=2)


def test_requests_may_come_faster_than_the_loops_timers_tell_apart() -> None:
    """For a timer that is due within half a millisecond, uvloop makes a plain handle, which does not know its due
    time.
    """

    async def pairs() -> list[int]:
        engine = ServedEngine(preset("dualmap-910b4-qwen7b"), bytes_per_token=4, max_waiting=8, statistics=EngineStatistics())
        pacer = EnginePacer(engine, time_scale=1e6, stream_interval_seconds=0.02)
        tokens = []
        for _ in range(200):
            tickets = [pacer.submit(a_generation(), streaming=False) for _ in range(2)]
            for ticket in tickets:
                await ticket.end()
            tokens += [ticket.tokens() for ticket in tickets]
        return tokens

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(pairs(), PATIENCE_SECONDS)) == [2] * 400
