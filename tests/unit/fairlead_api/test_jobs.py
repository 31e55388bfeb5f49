"""Background jobs: one run at a time."""

import asyncio

from fairlead_api.jobs import Alone


class LongJob:
    """Runs until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.under_way = 0
        self.free = asyncio.Event()

    async def run(self) -> None:
        self.begun += 1
        self.under_way += 1
        try:
            await self.free.wait()
        finally:
            self.under_way -= 1


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_job_that_is_due_again_while_it_runs_goes_on_alone() -> None:
    job = LongJob()
    alone = Alone(job.run)
    for _ in range(3):  # each start returns at once, so the scheduler never sees a run that takes too long
        await asyncio.wait_for(alone.start(), 1)
        await settle()
    assert (job.begun, job.under_way) == (1, 1)
    job.free.set()
    await settle()
    await alone.start()
    await settle()
    assert (job.begun, job.under_way) == (2, 0)


async def test_a_job_under_way_ends_with_its_scheduler() -> None:
    job = LongJob()
    alone = Alone(job.run)
    await alone.start()
    await settle()
    await alone.stop()
    await alone.start()
    await settle()
    assert (job.begun, job.under_way) == (1, 0)
