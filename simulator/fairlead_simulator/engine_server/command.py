"""The command line of the simulated engine: checks the flags, binds a socket, and runs a server that ends cleanly on
SIGTERM.
"""

import asyncio
import gc
import signal
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from typing import NoReturn, get_args

import click
import uvicorn
import uvloop

from fairlead.kv_events.engine_hashes import EngineHashing
from fairlead_process.commands import run_program
from fairlead_process.option_types import NumberOption, WholeOption
from fairlead_process.starting import bind
from fairlead_simulator.engine_model.costs import PrefillCost, TransferCost
from fairlead_simulator.engine_model.presets import preset
from fairlead_simulator.engine_model.settings import EngineSettings, Mode
from fairlead_simulator.engine_server.answers import AnswerBook
from fairlead_simulator.engine_server.app import EngineApp
from fairlead_simulator.engine_server.asgi import Connections, protocol_that_keeps
from fairlead_simulator.engine_server.engine import ServedEngine
from fairlead_simulator.engine_server.kv_events import KvEventPublisher, PrefixCacheEvents, PublisherSettings, open_publishers
from fairlead_simulator.engine_server.kv_transfers import KvTransfers, TransferSettings
from fairlead_simulator.engine_server.pacing import EnginePacer
from fairlead_simulator.engine_server.protocols.stored_responses import ResponseStore
from fairlead_simulator.engine_server.served_instance import InstanceSettings, Rank, ServedInstance
from fairlead_simulator.engine_server.sleeping import SleepMode
from fairlead_simulator.engine_server.statistics import EngineStatistics
from fairlead_simulator.engine_server.tokens import ByteTokenizer

_WIDEST_TOKEN_OF_EVENTS = 4
"""Maximum bytes per token if KV events are published. The token ids in KV events must fit 32 bits."""
_POSITIVE = NumberOption(positive=True)
_COUNT = click.IntRange(min=1)
_DEFAULTS = preset("simulated")
"""The preset with the flags' defaults. `fairlead simulate` assumes the same values for pools of simulated engines,
except for values that the pool's spec sets.
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", required=True, help="Name of the model that the engine serves.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on; 0 chooses a free one.")
@click.option(
    "--prefill-tokens-per-second", type=_POSITIVE, default=6250.0, show_default=True, help="Uncached prompt tokens computed in a second."
)
@click.option("--decode-step-ms", type=_POSITIVE, default=20.0, show_default=True, help="Fixed part of a decode step.")
@click.option("--kv-cache-tokens", type=_COUNT, default=1_198_372, show_default=True, help="Tokens that the KV cache holds.")
@click.option("--block-size", type=_COUNT, default=16, show_default=True, help="Tokens per KV block.")
@click.option(
    "--data-parallel-size",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Data-parallel ranks, each with its own batch and cache; a request's X-Data-Parallel-Rank names one.",
)
@click.option("--max-running", type=_COUNT, default=256, show_default=True, help="Requests computed at once.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default=_DEFAULTS.mode,
    show_default=True,
    help="The engine's scheduler; chunked: as in vLLM V1.",
)
@click.option(
    "--max-batched-tokens", type=_COUNT, default=_DEFAULTS.max_batched_tokens, show_default=True, help="Maximum prompt tokens of one step."
)
@click.option("--startup-seconds", type=NumberOption(), default=1.0, show_default=True, help="Seconds until the engine is ready.")
@click.option(
    "--max-waiting", type=_COUNT, default=1024, show_default=True, help="Maximum number of waiting requests; further ones get 503."
)
@click.option(
    "--time-scale",
    type=_POSITIVE,
    default=1.0,
    show_default=True,
    help="Speed-up: the engine runs this many times as fast as the other options say.",
)
@click.option("--bytes-per-token", type=_COUNT, default=4, show_default=True, help="Bytes of text per token.")
@click.option(
    "--stream-interval-ms", type=_POSITIVE, default=20.0, show_default=True, help="Tokens within this time share one chunk of a stream."
)
@click.option(
    "--responses-store/--no-responses-store",
    default=True,
    show_default=True,
    help="Store responses, so that they can be retrieved and continued.",
)
@click.option(
    "--kv-bytes-per-token", type=_COUNT, default=_DEFAULTS.transfer.bytes_per_token, show_default=True, help="Size of a token's KV blocks."
)
@click.option(
    "--kv-transfer-bytes-per-second",
    type=_POSITIVE,
    default=_DEFAULTS.transfer.bytes_per_second,
    show_default=True,
    help="Speed of the link over which other engines fetch KV blocks from this engine; all transfers share it.",
)
@click.option(
    "--kv-transfer-latency-ms",
    type=NumberOption(),
    default=_DEFAULTS.transfer.latency_seconds * 1e3,
    show_default=True,
    help="Fixed part of a transfer of KV blocks.",
)
@click.option(
    "--kv-lease-seconds",
    type=_POSITIVE,
    default=30.0,
    show_default=True,
    help="How long KV blocks are held for an engine that fetches them.",
)
@click.option(
    "--kv-load-failure-policy",
    type=click.Choice(("recompute", "fail")),
    default="recompute",
    show_default=True,
    help="When KV blocks cannot be fetched: compute the prompt here, or fail the request (vLLM's default).",
)
@click.option(
    "--kv-side-channel-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port where other engines ask for KV blocks; 0 chooses a free one.",
)
@click.option("--kv-events-endpoint", help="Endpoint for publishing KV events, as in vLLM: bound if it has a *, else connected to.")
@click.option("--kv-events-replay-endpoint", help="Endpoint for replays of KV events.")
@click.option("--kv-events-topic", default="", help="Topic: the first frame of every message with KV events.")
@click.option("--kv-events-buffer-steps", type=_COUNT, default=10_000, show_default=True, help="Batches of KV events kept for replays.")
@click.option(
    "--kv-events-encoding",
    type=click.Choice(("maps", "arrays")),
    default="maps",
    show_default=True,
    help="Form of KV events; arrays: as in vLLM before 0.26.",
)
@click.option(
    "--enable-sleep-mode/--no-enable-sleep-mode",
    default=False,
    show_default=True,
    help="Serve /sleep, /wake_up and /is_sleeping, as vLLM does with VLLM_SERVER_DEV_MODE=1.",
)
@click.option("--sleep-seconds", type=NumberOption(), default=0.5, show_default=True, help="Time to fall asleep.")
@click.option("--wake-seconds", type=NumberOption(), default=1.0, show_default=True, help="Time to wake up.")
@click.option("--seed", type=WholeOption(-(2**63), 2**63 - 1), default=0, show_default=True, help="Seed of the words in answers.")
def engine(
    model: str,
    host: str,
    port: int,
    prefill_tokens_per_second: float,
    decode_step_ms: float,
    kv_cache_tokens: int,
    block_size: int,
    data_parallel_size: int,
    max_running: int,
    mode: Mode,
    max_batched_tokens: int,
    max_waiting: int,
    time_scale: float,
    bytes_per_token: int,
    startup_seconds: float,
    stream_interval_ms: float,
    responses_store: bool,
    kv_bytes_per_token: int,
    kv_transfer_bytes_per_second: float,
    kv_transfer_latency_ms: float,
    kv_lease_seconds: float,
    kv_load_failure_policy: str,
    kv_side_channel_port: int,
    kv_events_endpoint: str | None,
    kv_events_replay_endpoint: str | None,
    kv_events_topic: str,
    kv_events_buffer_steps: int,
    kv_events_encoding: str,
    enable_sleep_mode: bool,
    sleep_seconds: float,
    wake_seconds: float,
    seed: int,
) -> None:
    """Serve a simulated engine that behaves like vLLM."""
    ready_at = time.monotonic() + startup_seconds
    if kv_cache_tokens < block_size:
        raise click.UsageError(f"--kv-cache-tokens {kv_cache_tokens} is less than one block (--block-size {block_size})")
    settings = EngineSettings(
        mode=mode,
        block_tokens=block_size,
        kv_tokens=kv_cache_tokens,
        max_batched_tokens=max_batched_tokens,
        max_sequences=max_running,
        prefill=PrefillCost(per_token=1 / prefill_tokens_per_second),
        decode=replace(_DEFAULTS.decode, fixed=decode_step_ms / 1e3),
    )
    transfer_settings = TransferSettings(
        cost=TransferCost(
            bytes_per_token=kv_bytes_per_token,
            bytes_per_second=kv_transfer_bytes_per_second,
            latency_seconds=kv_transfer_latency_ms / 1e3,
        ),
        lease_seconds=kv_lease_seconds,
        fails=kv_load_failure_policy == "fail",
        port=kv_side_channel_port,
    )
    publishers: list[KvEventPublisher] = []
    if kv_events_endpoint is not None:
        if bytes_per_token > _WIDEST_TOKEN_OF_EVENTS:
            raise click.UsageError(
                f"--kv-events-endpoint needs token ids of 32 bits: --bytes-per-token of at most 4, not {bytes_per_token}"
            )
        publishers = open_publishers(
            PublisherSettings(
                endpoint=kv_events_endpoint,
                replay_endpoint=kv_events_replay_endpoint,
                topic=kv_events_topic,
                buffer_steps=kv_events_buffer_steps,
                arrays=kv_events_encoding == "arrays",
            ),
            host,
            data_parallel_size,
        )
    elif kv_events_replay_endpoint is not None:
        raise click.UsageError("--kv-events-replay-endpoint needs --kv-events-endpoint")
    listener = bind("--host/--port", host, port)
    listener.listen(2048)
    instance_settings = InstanceSettings(
        model=model,
        bytes_per_token=bytes_per_token,
        # JSON may escape a byte into six.
        body_limit_bytes=6 * kv_cache_tokens * bytes_per_token + 1_048_576,
        context_tokens=settings.capacity_blocks * block_size,
        ready_at=ready_at,
        id_prefix=f"{time.time_ns() & 0xFFFFFFFF:08x}-",
        created=int(time.time()),
        version=f"fairlead-simulator {version('fairlead')}",
    )

    def rank(number: int) -> Rank:
        events: PrefixCacheEvents | None = None
        if publishers:
            hashing = EngineHashing(algorithm="sha256_cbor", seed=str(seed))
            events = PrefixCacheEvents(ByteTokenizer(bytes_per_token), block_size, hashing)
        statistics = EngineStatistics(wall_seconds=1 / time_scale)
        model_engine = ServedEngine(
            settings, bytes_per_token=bytes_per_token, max_waiting=max_waiting, statistics=statistics, watcher=events
        )

        def publish() -> None:
            if events is not None and (happened := events.take()):
                publishers[number].publish(happened)

        pacer = EnginePacer(model_engine, time_scale, stream_interval_ms / 1e3, moved=publish)
        side_channel = transfer_settings.port and transfer_settings.port + number
        return Rank(pacer, KvTransfers(pacer, replace(transfer_settings, port=side_channel)))

    async def serve() -> None:
        ranks = [rank(number) for number in range(data_parallel_size)]
        connections: Connections = {}
        sleeps = SleepMode([one.pacer for one in ranks], sleep_seconds=sleep_seconds, wake_seconds=wake_seconds)
        instance = ServedInstance(
            instance_settings,
            *ranks[0],
            AnswerBook(seed, bytes_per_token),
            kv_event_sources={str(number): publisher.source() for number, publisher in enumerate(publishers)},
            others=ranks[1:],
            sleep_mode=sleeps if enable_sleep_mode else None,
        )
        app = EngineApp(instance, connections, ResponseStore() if responses_store else None)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=protocol_that_keeps(connections),
                lifespan="off",
                interface="asgi3",
                access_log=False,
                log_level="warning",
                proxy_headers=False,
                server_header=False,
                ws="none",
                timeout_keep_alive=75,
            )
        )
        gc.freeze()
        address = listener.getsockname()
        click.echo(f"simulated engine of {model} listening on http://{address[0]}:{address[1]}")
        sys.stdout.flush()
        await server.serve(sockets=[listener])

    # uvicorn repeats the signal that ended it once it has finished; a requested end is not a failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def main() -> NoReturn:
    """Run the command in `sys.argv` with the error handling that all of Fairlead's programs share."""
    run_program(engine, "fairlead-engine")
