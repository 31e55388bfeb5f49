"""The infrastructure that every subject uses, the features that subjects add to the API, and how features run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from fairlead.routing.contracts.catalogues import PolicyCatalogue
from fairlead_api.http.routes import Routes
from fairlead_api.http.telemetry import Telemetry
from fairlead_api.infra.copying import keep_ending_suspended_copies
from fairlead_api.infra.database import CONTROL, JOBS, READS, REPORTS, UPKEEP, Database
from fairlead_api.infra.lost_commits import LostCommits
from fairlead_api.infra.notices import Notice
from fairlead_api.infra.notifying import listen
from fairlead_api.infra.partitions import Partitions
from fairlead_api.infra.pulse import Pulse
from fairlead_api.infra.sharing import Recent, Shared
from fairlead_api.infra.upgrading import older, upgrade
from fairlead_api.settings import Settings
from fairlead_process.policies import installed_policies
from fairlead_process.tasks import Tasks

LISTENING_SECONDS = 3.0
"""Maximum number of seconds that the start of the API waits until it can receive notices. Without a database the API
starts anyway and responds with 503.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infra:
    """The infrastructure for every subject. `present`, `recent` and `of_hours` cache results for several callers;
    `simulator` is the command of a process that simulates jobs.
    """

    settings: Settings
    clock: Callable[[], datetime]
    pulse: Pulse
    reads: Database
    reports: Database
    control: Database
    background: Database
    jobs: Database
    partitions: Partitions
    telemetry: Telemetry
    lost_commits: LostCommits
    policies: PolicyCatalogue
    present: Shared
    recent: Recent
    of_hours: Recent
    simulator: Sequence[str]
    suspended_seconds: float
    """Maximum pause, in seconds, within a transaction that stores a report. After a longer pause, the process counts as
    suspended.
    """

    @property
    def simulates(self) -> bool:
        """Whether this process runs simulation jobs."""
        return self.settings.simulation_processes > 0 and bool(self.simulator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The parts that one subject adds to the API: routes, tasks that run until the process ends, and listeners for
    notices of other processes (`on_gap` is called if notices may be missing). The contexts `jobs` and `ports` run
    background jobs and the subject's own ports while they are open.
    """

    routes: Sequence[Routes]
    tasks: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    on_notice: Callable[[Notice], Awaitable[None]] | None = None
    on_gap: Callable[[], None] | None = None
    jobs: Callable[[], AbstractAsyncContextManager[None]] | None = None
    ports: Callable[[], AbstractAsyncContextManager[None]] | None = None


def infra_of(settings: Settings, clock: Callable[[], datetime] | None, patience: float, simulator: Sequence[str]) -> Infra:
    """Return the infrastructure that the settings describe. The database may take `patience` times as long as usual
    before it counts as busy or unreachable.
    """
    pulse, share = Pulse(settings.database_url, patience, older()), settings.share_seconds
    reads, reports, control, background, jobs = (
        Database(one.patient(patience), pulse, settings.router_live_seconds) for one in (READS, REPORTS, CONTROL, UPKEEP, JOBS)
    )
    return Infra(
        settings=settings,
        clock=clock or pulse.now,
        pulse=pulse,
        reads=reads,
        reports=reports,
        control=control,
        background=background,
        jobs=jobs,
        partitions=Partitions(background),
        telemetry=Telemetry(),
        lost_commits=LostCommits(background),
        policies=installed_policies(),
        present=Shared(share),
        recent=Recent(4 * share, 20 * share),
        of_hours=Recent(30 * share, 120 * share),
        simulator=simulator,
        suspended_seconds=REPORTS.patient(patience).idle_seconds,
    )


@asynccontextmanager
async def running(infra: Infra, features: Sequence[Feature]) -> AsyncIterator[None]:
    """Runs the features while the context is open."""
    if infra.settings.migrate:
        await asyncio.to_thread(upgrade, infra.settings.database_url)
    async with contextlib.AsyncExitStack() as stack:
        for database in (infra.reads, infra.reports, infra.control, infra.background, infra.jobs):
            stack.push_async_callback(database.close)
        tasks = await stack.enter_async_context(Tasks())
        tasks.start("database pulse", infra.pulse.run)
        tasks.start("suspended copies", partial(keep_ending_suspended_copies, infra.background, infra.suspended_seconds))
        for figures in (infra.recent, infra.of_hours):
            stack.push_async_callback(figures.close)
        listening = asyncio.Event()

        async def noticed(notice: Notice) -> None:
            for feature in features:
                if feature.on_notice is not None:
                    await feature.on_notice(notice)

        def connected() -> None:
            for feature in features:
                if feature.on_gap is not None:
                    feature.on_gap()
            listening.set()

        tasks.start("notices", partial(listen, infra.pulse, noticed, connected))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(listening.wait(), LISTENING_SECONDS)
        for feature in features:
            for name, task in feature.tasks.items():
                tasks.start(name, task)
        for feature in features:
            if infra.settings.background and feature.jobs is not None:
                await stack.enter_async_context(feature.jobs())
            if feature.ports is not None:
                await stack.enter_async_context(feature.ports())
        yield
