"""The router's process: `python -m fairlead_router.main --host H --port P --admin-port A [--socket-reuse]`. Its other
settings come from the environment.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import socket
import uuid
from functools import partial

import click
import uvloop

from fairlead.errors import InvalidInput
from fairlead.routing.contracts.schedulers import Scheduler
from fairlead.routing.scheduling.settings import SchedulerSettings
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import RoutingTable
from fairlead_client.internal import SystemApi
from fairlead_process.clock import AwakeClock, SteadyClock
from fairlead_process.commands import run_program
from fairlead_process.doors import Door, take_files
from fairlead_process.environment import read
from fairlead_process.memory import give_back, memory_in_use
from fairlead_process.policies import installed_policies
from fairlead_process.starting import begin, bind, one_line_errors
from fairlead_process.tasks import Tasks
from fairlead_router.admin import serving_admin
from fairlead_router.deciding.company import LOOK_SECONDS, Company
from fairlead_router.deciding.listed import Directory, Folder, ToldRouters
from fairlead_router.engines.silences import Silences
from fairlead_router.engines.upstream import UpstreamPool
from fairlead_router.gateway.gateway import Gateway
from fairlead_router.gateway.informing import Informing
from fairlead_router.gateway.prompt_tokens import PromptTokens
from fairlead_router.gateway.routed_requests import RoutedRequests
from fairlead_router.kv_events.central import CentralPlace
from fairlead_router.limits import EVENT_SOURCES, OTHER_ROUTERS, PUBLISHERS, REMEDY, budget_lines, door_plans, memory_limits
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.picking.picker import Picker
from fairlead_router.picking.serving import PickerListeners, PickerServer
from fairlead_router.pools.engine_lives import EngineLives
from fairlead_router.pools.engine_metrics import DOUBTED_SECONDS, SCRAPE_SECONDS, EngineScraper
from fairlead_router.pools.kept_prompts import KeptPrompts
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.pools.kv_event_following import FOLLOW_SECONDS, KvEventFollower
from fairlead_router.pools.pool_training import TRAIN_SECONDS, PoolTraining
from fairlead_router.pools.pools import Pools, SchedulerFactory
from fairlead_router.pools.table_cache import KeptLife, KeptRouters, TableCache
from fairlead_router.pools.table_stream import TableFollower
from fairlead_router.relaying.cache_moves import CacheMoves
from fairlead_router.relaying.calls import Calls
from fairlead_router.relaying.canaries import LOOK_SECONDS as CANARY_LOOK_SECONDS
from fairlead_router.relaying.canaries import Canaries
from fairlead_router.relaying.carrying_on import HAND_OVER_LOOK_SECONDS, CarryingOn, HandOvers
from fairlead_router.relaying.direct import DirectRelay
from fairlead_router.relaying.heirs import COPIES_LOOK_SECONDS, Heirs, PrefixCopies
from fairlead_router.relaying.heirs import LOOK_SECONDS as HEIRS_LOOK_SECONDS
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.proxying import Proxy
from fairlead_router.relaying.sending import Sender
from fairlead_router.relaying.usage_asking import UsageAsking
from fairlead_router.reporting.collecting import BATCH_SECONDS, Collector, spooled_changes
from fairlead_router.reporting.delivering import Delivery
from fairlead_router.reporting.spool import Spool
from fairlead_router.reporting.spool_metrics import SpoolMetrics
from fairlead_router.serving.body_memory import BodyMemory, MemoryShare, memory_of_process
from fairlead_router.serving.client_connections import ConnectionLimits
from fairlead_router.serving.cors import Cors
from fairlead_router.serving.http_server import GatewayServer, server_config
from fairlead_router.settings import MEBIBYTE, RouterSettings, Sizes, read_settings
from fairlead_router.tracing.exporting import SpanExport, otlp_sender
from fairlead_router.tracing.tracer import Tracer
from fairlead_router.training.trainer import Trainer

TICK_SECONDS = 0.02
GOODBYE_SECONDS = 3.0
GIVE_BACK_SECONDS = 5.0
KEEP_SECONDS = 10.0
"""Seconds between two writes to disk of the prefixes that instances are assumed to have cached."""

logger = logging.getLogger(__name__)


def pool_scheduler_factory(router_id: str, seed: int, sample_rate: float, max_retries: int) -> SchedulerFactory:
    """Return the function that makes a pool's scheduler. `seed` must differ between starts of a router; otherwise the
    records of two starts would have the same ids.
    """
    settings = SchedulerSettings(attempts=max_retries + 1)
    policies = installed_policies()

    def build(table: RoutingTable) -> Scheduler:
        return SharedScheduler(table, router_id, seed, sample_rate=sample_rate, settings=settings, policies=policies)

    return build


class Router:
    """A router process with all its parts. Make it inside a running event loop."""

    def __init__(
        self, settings: RouterSettings, scheduler_factory: SchedulerFactory, start_id: str, ask_listener: socket.socket | None = None
    ) -> None:
        self.settings = settings
        self.doors = {name: Door(most) for name, most in take_files(*door_plans(settings)).items()}
        self.now = SteadyClock()
        self.metrics = RouterMetrics()
        self.pools = Pools(scheduler_factory, self.metrics, self.now, recorded_share=settings.recorded_traffic)
        self.keys = GatewayKeys(settings.gateway_keys, self.metrics, required=settings.gateway_keys_required)
        self.upstream = UpstreamPool(self.now, connect_seconds=settings.timeouts.connect)
        self.awake = AwakeClock(self.now)
        self.limits = memory_limits(settings, memory_of_process())
        self.body_memory = BodyMemory(self.limits.bodies, self.limits.largest)
        self.kv_events = KvEventFollower(
            self.pools,
            self.upstream,
            self.metrics,
            self.now,
            self._central_place(),
            hosts=settings.kv_event_hosts,
            most_sources=self.doors[EVENT_SOURCES].most,
        )
        silences = Silences(self.awake)
        lives = EngineLives(silences, self.kv_events.events_heard, self.now)
        self.calls = Calls(settings.timeouts, silences, self.now, f"{settings.router_id}-{start_id}", lives.moved)
        self.informing = Informing(self.pools, self.upstream, self.metrics)
        sender = Sender(self.upstream, self.calls)
        asking = UsageAsking(sender, self.now)
        held = HeldResponses()
        carrying = CarryingOn(self.upstream, self.now)
        self.moves = CacheMoves(self.upstream, self.now)
        self.hand_overs = HandOvers(self.pools, self.calls, carrying, self.now)
        prompts = KeptPrompts(settings.kept_prompts_bytes)
        proxy = Proxy(sender, asking, self.calls, held, carrying, self.moves, prompts, self.now)
        self.heirs = Heirs(self.pools, self.calls, proxy, self.moves, prompts, lambda: self.informing.draining, self.now)
        self.copies = PrefixCopies(self.pools, self.calls, self.moves, prompts, lambda: self.informing.draining, self.now)
        direct = DirectRelay(sender, self.upstream, self.calls, self.now, tries=settings.max_retries + 1)
        self.prompt_tokens, trusted = PromptTokens(self.upstream, self.now), settings.trusts_priority_headers
        routed = RoutedRequests(
            self.pools,
            self.keys,
            self.calls,
            self.prompt_tokens,
            held,
            self.now,
            trusted=trusted,
            explains=settings.explains_without_key,
            traces=settings.otlp_endpoint is not None,
        )
        self.gateway = Gateway(
            settings,
            self.pools,
            self.keys,
            self.calls,
            proxy,
            direct,
            held,
            self.informing,
            routed,
            self.metrics,
            self.now,
        )
        picker = Picker(
            settings,
            self.pools,
            self.keys,
            self.calls,
            routed,
            direct,
            held,
            self.informing,
            self.metrics,
            self.body_memory,
            asking,
            self.now,
        )
        self.picker = PickerServer(picker, lambda: self.informing.ready, settings.timeouts, self.now, self.doors)
        self.metrics.body_bytes = lambda: self.body_memory.held
        self.metrics.picker_streams = lambda: self.picker.active
        self.spool = Spool(settings.spool_dir / "reports", settings.spool_max_bytes, self.now)
        self.cache = TableCache(settings.spool_dir, self.pools.api_now)
        self.api = SystemApi(settings.api_urls, settings.api_token)
        spool_metrics = SpoolMetrics(self.spool, self.metrics, self.now)
        told = None if ask_listener is None else ToldRouters()
        self.delivery = Delivery(
            settings.router_id,
            self.pools,
            self.keys,
            self.spool,
            self.api,
            self.metrics,
            spool_metrics,
            self.now,
            lambda: uuid.uuid4().hex,
            told,
        )
        self.spans = SpanExport(otlp_sender(settings.otlp_endpoint, settings.router_id)) if settings.otlp_endpoint else None
        tracer: Tracer | None = None
        if self.spans is not None:
            tracer, counts = Tracer(settings.router_id, self.spans.offer), self.spans.counts
            self.metrics.spans = lambda: counts
        self.collector = Collector(
            settings.router_id,
            self.pools,
            self.keys.use,
            self.spool,
            spool_metrics,
            self.now,
            lambda: uuid.uuid4().hex,
            self.delivery.wake,
            tracer,
        )
        self.follower = TableFollower(settings.router_id, self.api, self.pools, self.keys, self.cache, self.metrics, self._synced, self.now)
        self.scraper = EngineScraper(self.pools, self.upstream, silences, lives, self.metrics, self.now)
        self.canaries = Canaries(self.pools, self.upstream, self.awake)
        self.trainer = Trainer(self.now)
        self.training = PoolTraining(
            settings.router_id, self.pools, self.trainer, self.api, self.metrics, self.now, lambda: uuid.uuid4().hex
        )
        directories: list[Directory] = [] if told is None else [told]
        if settings.routers_dir is not None:
            directories.append(Folder(settings.routers_dir))
        door = self.doors[OTHER_ROUTERS.name]
        self.company: Company | None = None
        if directories:
            self.company = Company(directories, settings.router_id, self.pools, self.metrics, self.now, ask_listener, door)
        self._tasks = Tasks()
        self._ticks = 0

    def _central_place(self) -> CentralPlace | None:
        port = self.settings.kv_events_port
        share = partial(MemoryShare, self.body_memory)
        return None if port is None else CentralPlace(port, self.doors[PUBLISHERS.name], share)

    def connection_limits(self) -> ConnectionLimits:
        """Return the limits of one client's connection."""
        settings = self.settings
        return ConnectionLimits(
            header_bytes=settings.max_header_bytes,
            header_seconds=settings.timeouts.header,
            keep_alive_seconds=settings.timeouts.keep_alive,
            door=self.doors["clients"],
            is_ending=lambda: self.informing.draining,
            refused=self.metrics.client_errors,
            memory=self.body_memory,
            cors=Cors(settings.cors_origins),
        )

    def log_limits(self) -> None:
        """Log the division of the process's files and memory, and a warning if the memory is too small for the worst
        case.
        """
        connections = {name: door.most for name, door in self.doors.items()}
        logger.info("limits", extra={"connections": connections, **self.limits.shown()})
        if not self.limits.fit:
            logger.warning("this process may need more memory than it has", extra={"remedy": REMEDY, **self.limits.shown()})

    def _synced(self) -> None:
        self.informing.synced = True

    def recall(self) -> None:
        """Load the files that an earlier process of this router left on disk: unsent reports, the last tables,
        bindings, prefixes, observations of engines, keys. Raises OSError.
        """
        self._say_how_the_last_ended()
        self.spool.open()
        tables, bindings = self.cache.load()
        keys = self.cache.load_gateway_keys()
        if keys is not None:
            self.keys.replace(keys, self.now())
        self._recall_routers()
        for table in tables:
            self.pools.apply(table)
        self.pools.apply_bindings(bindings)
        self.pools.recall_changes(spooled_changes(self.spool))
        recalled = self.pools.recall_prefixes(self.cache.load_prefixes())
        self.pools.recall_engines(self.cache.load_engines())
        if tables or len(self.spool):
            found = {"pools": len(tables), "bindings": len(bindings), "prefixes_of_instances": recalled, "unsent_batches": len(self.spool)}
            logger.info("recalled from disk", extra=found)

    def _say_how_the_last_ended(self) -> None:
        before, now = self.cache.load_life(), self.now()
        if before is not None:
            had = {"memory_mib": before.memory // MEBIBYTE, "available_mib": before.available // MEBIBYTE}
            extra = {**had, "seen_seconds_ago": round(now - before.at)}
            logger.warning(
                "the previous process of this router did not stop properly: it was killed, ran out of memory, or its machine failed",
                extra=extra,
            )
        self.cache.keep_life(self._life())

    def _life(self) -> KeptLife:
        return KeptLife(memory=memory_in_use(), available=self.limits.available, at=self.now())

    def _recall_routers(self) -> None:
        """Load the number of live routers from disk. Until the control API reports a number, this router assumes that
        the other routers still exist.
        """
        kept = self.cache.load_routers()
        if kept is not None:
            self.pools.assume_routers(kept.live)
            self.keys.know_routers(kept.live, self.now())
            extra = {"assumed": kept.live, "told_seconds_ago": round(self.now() - kept.told_at)}
            logger.info("assuming the number of live routers from before the restart, until the control API reports it", extra=extra)

    def start(self) -> None:
        """Start the tasks that receive tables, send reports, read engines' metrics, call the schedulers' ticks, and do
        the other periodic work.
        """
        self._tasks.every(TICK_SECONDS, "tick", self._tick)
        self._tasks.start("stream", self.follower.follow_forever)
        self._tasks.every(BATCH_SECONDS, "collect", self.collector.collect)
        if self.spans is not None:
            self.spans.start()
        self._tasks.start("send", self.delivery.send_forever)
        self._tasks.every(SCRAPE_SECONDS, "scrape", self.scraper.scrape)
        self._tasks.every(DOUBTED_SECONDS, "doubted lists", self.scraper.read_doubted)
        self._tasks.every(CANARY_LOOK_SECONDS, "canaries", self.canaries.send)
        self._tasks.every(HAND_OVER_LOOK_SECONDS, "hand-overs", self.hand_overs.look)
        self._tasks.every(HEIRS_LOOK_SECONDS, "heirs", self.heirs.look)
        self._tasks.every(COPIES_LOOK_SECONDS, "copies", self.copies.look)
        self._tasks.every(FOLLOW_SECONDS, "kv events", self.kv_events.follow)
        self._tasks.every(TRAIN_SECONDS, "train", self.training.train)
        self._tasks.every(KEEP_SECONDS, "keep prefixes", self.keep_prefixes)
        self._tasks.every(GIVE_BACK_SECONDS, "memory", self._give_back)
        if self.company is not None:
            self._tasks.every(LOOK_SECONDS, "routers", self.company.look)

    async def keep_prefixes(self) -> None:
        """Write to disk, for a later process of this router: the prefixes that instances are assumed to have cached,
        the observations of engines, the number of live routers, and facts about this process.
        """
        memories, engines, told_at = self.pools.prefix_memories(), self.pools.engine_memories(), self.pools.routers_told_at
        await asyncio.to_thread(self.cache.keep_prefixes, memories)
        await asyncio.to_thread(self.cache.keep_engines, engines)
        await asyncio.to_thread(self.cache.keep_life, self._life())
        if told_at is not None:
            await asyncio.to_thread(self.cache.keep_routers, KeptRouters(live=self.pools.routers, told_at=told_at))

    async def _give_back(self) -> None:
        if self.body_memory.has_fallen():
            await asyncio.to_thread(give_back)

    async def _tick(self) -> None:
        self._ticks += 1
        self.awake.look()
        if self.company is not None:
            self.company.let_stale_go()
        self.pools.tick()
        self.body_memory.look()
        if self._ticks % 5 == 0:
            self.calls.sweep()
            self.picker.sweep()
        if self._ticks % 250 == 0:
            self.upstream.close_idle()

    async def let_go(self, server: GatewayServer) -> None:
        """Stop serving without refusing requests at first. For at most half of `timeouts.shutdown` seconds, clients and
        proxies can change to other routers, and their requests, including waiting requests, can finish. Then call
        `drain`.
        """
        self.informing.draining = True
        seconds = self.settings.timeouts.shutdown / 2
        await asyncio.gather(server.let_clients_go(seconds), self.picker.drain(seconds))
        await self.drain()

    async def drain(self) -> None:
        """Refuse new and queued requests, and wait for requests in flight for at most half of `timeouts.shutdown`
        seconds.
        """
        self.informing.draining = self.informing.refusing = True
        if self.company is not None:
            self.company.decide_no_more()
        self.pools.shut_down()
        seconds = self.settings.timeouts.shutdown / 2
        await asyncio.gather(self.picker.drain(seconds), self.calls.wait_until_idle(seconds))

    async def stop(self) -> None:
        """Send the last reports, report that this router stops, and close everything. Called when the server has
        stopped.
        """
        self.picker.close()
        await self.calls.wait_until_idle(1.0)
        await self._tasks.stop(
            "stream",
            "collect",
            "send",
            "scrape",
            "doubted lists",
            "canaries",
            "hand-overs",
            "heirs",
            "copies",
            "kv events",
            "train",
            "keep prefixes",
        )
        await self.keep_prefixes()
        self.kv_events.close()
        await self.trainer.close()
        await self.collector.collect(final=True)
        await self.delivery.finish(GOODBYE_SECONDS)
        if self.spans is not None:
            await asyncio.to_thread(self.spans.close, GOODBYE_SECONDS)
        await self._tasks.stop()
        if self.company is not None:
            self.company.close()
        self.upstream.close()
        await self.api.close()
        self.cache.end_life()


async def serve(
    settings: RouterSettings,
    listener: socket.socket,
    admin_listener: socket.socket,
    pickers: PickerListeners,
    ask_listener: socket.socket | None = None,
) -> None:
    """Run a router until a signal, then drain it. Clients connect at `listener`, operators at `admin_listener`, proxies
    that use the endpoint picker at `pickers`, and routers of other machines at `ask_listener`.
    """
    factory = pool_scheduler_factory(settings.router_id, secrets.randbits(63), settings.decision_sample_rate, settings.max_retries)
    router = Router(settings, factory, secrets.token_hex(4), ask_listener)
    router.recall()
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []

    async def drain_then_exit() -> None:
        logger.info("shutting down", extra={"in_flight": router.calls.active()})
        await router.let_go(server)
        server.should_exit = True

    config = server_config(router.gateway, router.connection_limits())
    server = GatewayServer(config, loop, lambda: draining.append(loop.create_task(drain_then_exit())))
    router.start()
    await pickers.serve(router.picker)
    router.log_limits()
    host, port = listener.getsockname()[:2]
    logger.info("listening", extra={"host": host, "port": port, "router": settings.router_id, "api": ", ".join(settings.api_urls)})
    admin_host, admin_port = admin_listener.getsockname()[:2]
    if not router.keys.required:
        logger.warning("clients need no API key: whoever reaches this port may use every pool (FAIRLEAD_GATEWAY_KEYS_REQUIRED)")
    logger.info("metrics and debug view", extra={"host": admin_host, "port": admin_port})
    gc.collect()
    gc.freeze()  # what lives for the whole process need not be looked at again by every collection
    async with serving_admin(router.informing, admin_listener, router.doors["operators"]):
        await server.serve(sockets=[listener])
        await router.stop()
    logger.info("stopped")


class _RouterCommand(click.Command):
    """The router's command. Its help ends with the memory and the connections that one router may use under the
    settings in the environment.
    """

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the last part of the help. Overrides click's method."""
        try:
            lines = list(budget_lines(read(Sizes, os.environ), memory_of_process()))
        except InvalidInput as problem:
            lines = [("Not known", str(problem))]
        with formatter.section("Limits, by the settings in the environment (docs/settings.md)"):
            formatter.write_dl(lines)


@click.command(cls=_RouterCommand)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--admin-host", default="127.0.0.1", show_default=True, help="Address at which /metrics and /debug/pools are served.")
@click.option(
    "--admin-port",
    default=9000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port for /metrics and /debug/pools; each router process needs its own; 0 takes a free one.",
)
@click.option("--socket-reuse", is_flag=True, help="Share the port with other router processes (SO_REUSEPORT).")
def main(host: str, port: int, admin_host: str, admin_port: int, socket_reuse: bool) -> None:
    """Run a router: an OpenAI-compatible gateway. Exits with code 2 and one line for unusable input."""
    with one_line_errors("router"):
        settings = begin(read_settings)
        listener = bind("--host/--port", host, port, shared=socket_reuse)
        admin_listener = bind("--admin-host/--admin-port", admin_host, admin_port)
        pickers = PickerListeners.bind(settings, host, shared=socket_reuse)
        ask_listener = None
        if settings.ask_host is not None:
            ask_listener = bind("FAIRLEAD_ROUTER_ASK_HOST/FAIRLEAD_ROUTER_ASK_PORT", settings.ask_host, settings.ask_port)
        # requests leave no reference cycles; searching for some at the default rate costs 5 % of a core
        gc.set_threshold(100_000, 50, 100)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, listener, admin_listener, pickers, ask_listener))


if __name__ == "__main__":
    run_program(main, "python -m fairlead_router.main")
