import asyncio

import uvloop

from fairlead_simulator.engine_requests import EngineRequest, EngineSettings
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engines import Engine

REQUEST = EngineRequest(id="a", prompt=b"p" * 40, prompt_tokens=10, max_tokens=2)


def test_requests_may_come_faster_than_the_loops_timers_tell_apart() -> None:
    """uvloop makes of a timer that is due within half a millisecond a plain handle, which does not know when it is due."""

    async def pairs() -> list[int]:
        pacer = EnginePacer(Engine(EngineSettings()), time_scale=1e6, stream_interval_seconds=0.02)
        tokens = []
        for _ in range(200):
            tickets = [pacer.submit(request, streaming=False) for request in (REQUEST, REQUEST)]
            for ticket in tickets:
                await ticket.end()
            tokens += [ticket.tokens() for ticket in tickets]
        return tokens

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(pairs(), 10)) == [2] * 400
