"""The router as a process: bad settings, signals, kill -9, and several processes on one port."""

import asyncio
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from fairlead.capabilities import EngineCapability, Figure, Source
from fairlead.reports.engines import EngineMemory
from fairlead.routing.contracts.sharing import decider_of
from fairlead.tables import PoolKey
from fairlead_client.client import ControlApi
from fairlead_client.internal import SystemApi
from fairlead_client.resources.gateway_keys import GatewayKeyRequest
from fairlead_testing.fakes.system_api import ROUTER_TOKEN
from fairlead_testing.running.api import CHAT, SECRETS, a_state, an_instance
from fairlead_testing.running.postgres import fresh_database, shared_server
from fairlead_testing.running.seams import real_seam
from fairlead_testing.running.strict_system_api import StrictSystemApi
from fairlead_testing.waiting import PATIENCE_SECONDS
from fairlead_testing.worlds.router_worlds import World, until
from processkube.testing.ports import free_port


def _environment(world: World, name: str = "router-0", **changes: str) -> dict[str, str]:
    return {
        **os.environ,
        "FAIRLEAD_API_URL": world.api.url,
        "FAIRLEAD_API_TOKEN": ROUTER_TOKEN,
        "FAIRLEAD_ROUTER_ID": name,
        "FAIRLEAD_SPOOL_DIR": str(world.directory / name),
        "FAIRLEAD_LOG_FORMAT": "json",
        **changes,
    }


async def _start(environment: dict[str, str], port: int, *options: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "fairlead_router.main", "--port", str(port), "--admin-port", "0", *options)
    with _log(environment).open("ab") as log:
        return await asyncio.create_subprocess_exec(*command, env=environment, stderr=log)


def _log(environment: dict[str, str]) -> Path:
    """Return the log file of a process with this environment; a pipe would need a reader meanwhile."""
    return Path(environment["FAIRLEAD_SPOOL_DIR"] + ".log")


async def _ready(port: int) -> None:
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass  # not listening yet
            await asyncio.sleep(0.05)


def _document(**more: object) -> dict[str, object]:
    return {"model": "mock", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3, **more}


async def _is_closed(client: httpx.AsyncClient) -> bool:
    """Return whether the router refuses new connections; it still serves those accepted while it began to stop."""
    try:
        await client.get("/readyz")
    except httpx.TransportError as error:
        return isinstance(error, httpx.ConnectError)
    return False


async def test_no_line_of_any_level_has_a_secret_or_what_somebody_asked(world: World) -> None:
    (engine,) = await world.start_engines(1)
    world.api.state.set_table(world.table())
    port, key, words = free_port(), "sk-a-key-of-a-client-0123456789", "what-nobody-else-may-read"
    environment = _environment(world, FAIRLEAD_LOG_LEVEL="DEBUG", FAIRLEAD_GATEWAY_KEYS=key)
    process = await _start(environment, port)
    try:
        await _ready(port)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
            for shown in (key, "sk-wrong-0123456789abcdef"):
                headers = {"authorization": f"Bearer {shown}", "x-session-id": "s"}
                await client.post(
                    "/v1/chat/completions", json=_document(user=words, messages=[{"role": "user", "content": words}]), headers=headers
                )
        assert len(engine.seen) == 1
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    written = _log(environment).read_text()
    assert "DEBUG" in written.upper(), "it says all that it has to say"
    for secret in (key, "sk-wrong-0123456789abcdef", environment["FAIRLEAD_API_TOKEN"], words):
        assert secret not in written


async def test_a_signal_lets_the_stream_under_way_finish_then_the_last_report_and_goodbye_are_sent(world: World) -> None:
    (engine,) = await world.start_engines(1)
    world.api.state.set_table(world.table())
    port = free_port()
    process = await _start(_environment(world), port)
    try:
        await _ready(port)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
            under_way = asyncio.create_task(
                client.post("/v1/chat/completions", json=_document(stream=True), headers={"x-script": "stepwise"})
            )
            await until(lambda: len(engine.seen) == 1)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await _is_closed(client):
                    await asyncio.sleep(0.02)
            with pytest.raises(httpx.ConnectError):
                await client.post("/v1/chat/completions", json=_document())
            while not under_way.done():
                engine.step.set()
                await asyncio.sleep(0.02)
            assert (await under_way).text.endswith("data: [DONE]\n\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
    assert [gone.router for gone in world.api.state.gone] == ["router-0"]
    assert sum(load.completed for load in world.api.state.stored("loads")) == 1


async def test_a_killed_router_starts_again_without_the_api_and_its_reports_arrive_once(world: World) -> None:
    await world.start_engines(3)
    world.api.state.set_table(world.table(policy="ear"))
    port = free_port()
    process = await _start(_environment(world), port)
    sessions = [f"s{number}" for number in range(6)]
    homes: dict[str, str] = {}
    try:
        await _ready(port)
        await world.api.stop()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
            for session in sessions:
                answer = await client.post("/v1/chat/completions", json=_document(), headers={"x-session-id": session})
                homes[session] = answer.headers["x-fairlead-instance"]
        reports = world.directory / "router-0" / "reports"
        await until(lambda: sum(path.read_bytes().count(b'"context_tokens"') for path in reports.glob("*.history.*.json")) >= len(sessions))
    finally:
        process.kill()
        await process.wait()
    again = await _start(_environment(world), port)
    try:
        await _ready(port)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
            for session in sessions:
                answer = await client.post("/v1/chat/completions", json=_document(), headers={"x-session-id": session})
                assert answer.headers["x-fairlead-instance"] == homes[session]
        await world.api.start()
        await until(lambda: len(world.api.state.bindings) == len(sessions))
        assert {binding.session: binding.instance for binding in world.api.state.bindings.values()} == homes
        assert sorted(change.session for change in world.api.state.stored("bindings")) == sessions
    finally:
        again.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await again.wait() == 0


ENDED = "the previous process of this router did not stop properly"


def _said(environment: dict[str, str], words: str) -> list[dict[str, object]]:
    """Return the lines of its log that have these words."""
    return [line for line in map(json.loads, _log(environment).read_text().splitlines()) if words in str(line)]


async def _half_bodies(port: int, count: int, size: int) -> None:
    """Send bodies without their last byte, on connections that stay open."""

    async def send() -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (size + 1))
                for _ in range(size // 65536):
                    writer.write(b" " * 65536)
                    await writer.drain()
                await asyncio.sleep(5)

    await asyncio.gather(*(send() for _ in range(count)))


async def test_a_router_out_of_memory_loses_no_report_and_the_next_one_says_how_it_ended(world: World) -> None:
    """The rest holds whether the router continues without more memory or is killed, as in a container."""
    await world.start_engines(2)
    world.api.state.set_table(world.table(policy="ear"))
    port, environment = free_port(), _environment(world, FAIRLEAD_BODY_MEMORY_BYTES=str(1 << 30))
    process = await _start(environment, port)
    sessions = [f"s{number}" for number in range(5)]
    try:
        await _ready(port)
        await world.api.stop()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
            for session in sessions:
                assert (await client.post("/v1/chat/completions", json=_document(), headers={"x-session-id": session})).status_code == 200
            reports = world.directory / "router-0" / "reports"
            await until(lambda: sum(path.read_bytes().count(b'"context_tokens"') for path in reports.glob("*.history.*.json")) >= 5)
            has = int(Path(f"/proc/{process.pid}/status").read_text().partition("VmSize:")[2].split()[0]) * 1024
            resource.prlimit(process.pid, resource.RLIMIT_AS, (has + (48 << 20), has + (48 << 20)))
            await _half_bodies(port, 30, 6 << 20)
            if process.returncode is None:
                answer = await client.post("/v1/chat/completions", json=_document(), headers={"x-session-id": "s5"})
                assert answer.status_code in (200, 503)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert not _said(environment, ENDED)
    again = await _start(environment, port)
    try:
        await _ready(port)
        (line,) = _said(environment, ENDED)
        assert int(str(line["memory_mib"])) > 20
        await world.api.start()
        await until(lambda: {change.session for change in world.api.state.stored("bindings")} >= set(sessions))
    finally:
        again.send_signal(signal.SIGTERM)
        await again.wait()
    third = await _start(environment, port)
    try:
        await _ready(port)
        assert len(_said(environment, ENDED)) == 1, "the second one ended by itself"
    finally:
        third.kill()
        await third.wait()


SPEED = 'fairlead_router_prefill_tokens_per_second{pool="default/chat",source="measured"}'


async def _asked(port: int, prompts: Iterable[str], **fields: object) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
        for prompt in prompts:
            messages = [{"role": "user", "content": prompt}]
            answer = await client.post("/v1/chat/completions", json=_document(stream=True, messages=messages, **fields))
            assert answer.status_code == 200


async def _speed(admin: int) -> float | None:
    """Return the prefill speed that the router measured, or recalls; None where it uses the declared one."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        page = (await client.get(f"http://127.0.0.1:{admin}/metrics")).text
    return next((float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(SPEED)), None)


async def test_what_was_observed_outlives_a_restart_on_the_routers_disk_or_else_at_the_api(world: World) -> None:
    await world.start_engines(1)
    table = world.table()
    world.api.state.set_table(table)
    world.api.state.pretence.live_routers = 3
    port, admin = free_port(), free_port()
    kept = world.directory / "router-0" / "engines.json"
    process = await _start(_environment(world), port, "--admin-port", str(admin))
    try:
        await _ready(port)
        assert await _speed(admin) is None
        async with asyncio.timeout(PATIENCE_SECONDS):  # on a busy machine one prefill says less
            while (speed := await _speed(admin)) is None:
                await _asked(port, (f"{uuid4()} {'word ' * 2_000}" for _ in range(6)))
        routers = world.directory / "router-0" / "routers.json"
        await until(lambda: kept.exists() and b'"measured"' in kept.read_bytes() and routers.exists())
    finally:
        process.kill()
        await process.wait()
    await world.api.stop()
    again = await _start(_environment(world), port, "--admin-port", str(admin))
    try:
        await _ready(port)
        assert await _speed(admin) == pytest.approx(speed), "the API is away, and its disk remembers"
        assert (await _figures(admin))["live_routers"] == 3
    finally:
        again.kill()
        await again.wait()
    known = EngineCapability(prefill_tokens_per_second=Figure(value=4_321.0, source=Source.MEASURED, samples=9, age_seconds=60.0))
    counted_by = float(table.engine.bytes_per_token)
    world.api.state.known_engines[table.pool] = EngineMemory(
        pool=table.pool, uid=table.uid, model=table.model, at=time.time(), counted_by=counted_by, known=known
    )
    await world.api.start()
    fresh = await _start(_environment(world, "router-1"), port, "--admin-port", str(admin))
    try:
        await _ready(port)
        assert await _speed(admin) == pytest.approx(4_321.0), "its disk is empty, and the API knows what others measured"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await _speed(admin) in (None, pytest.approx(4_321.0)):  # what it sees itself counts more
                await _asked(port, (f"{uuid4()} {'word ' * 2_000}" for _ in range(6)))
    finally:
        fresh.kill()
        await fresh.wait()


async def test_the_line_of_decode_steps_outlives_kill_9_on_the_routers_disk_and_comes_from_the_api_to_a_new_one(world: World) -> None:
    await world.start_engines(1)
    table = world.table(policy="fairlead")  # whose queues ask how long steps take
    world.api.state.set_table(table)
    port = free_port()

    def line(router: str) -> list[float]:
        kept = world.directory / router / "engines.json"
        found = [] if not kept.exists() else [one.get("decode_fit", []) for one in json.loads(kept.read_bytes())]
        return next((one for one in found if one), [])

    process = await _start(_environment(world), port)
    try:
        await _ready(port)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not line("router-0"):
                await _asked(port, (f"{uuid4()}" for _ in range(8)), max_tokens=40)
    finally:
        process.kill()
        await process.wait()
    fitted = line("router-0")
    await world.api.stop()
    again = await _start(_environment(world), port)
    try:
        await _ready(port)
        (world.directory / "router-0" / "engines.json").unlink()  # what it writes from now on is what it goes by
        await until(lambda: bool(line("router-0")))
        assert line("router-0") == pytest.approx(fitted), "the API is away, and its disk remembers"
    finally:
        again.kill()
        await again.wait()
    known = EngineCapability(decode_step_seconds=Figure(value=0.03, source=Source.MEASURED, samples=90, age_seconds=60.0))
    world.api.state.known_engines[table.pool] = EngineMemory(
        pool=table.pool,
        uid=table.uid,
        model=table.model,
        at=time.time(),
        counted_by=float(table.engine.bytes_per_token),
        known=known,
        decode_fit=(0.01, 0.2, 0.5),
    )
    await world.api.start()
    fresh = await _start(_environment(world, "router-1"), port)
    try:
        await _ready(port)
        await until(lambda: bool(line("router-1")))
        assert line("router-1") == pytest.approx([0.01, 0.2, 0.5]), "its disk is empty, and others have fitted steps"
    finally:
        fresh.kill()
        await fresh.wait()


@asynccontextmanager
async def _sharing(world: World) -> AsyncIterator[tuple[int, list[tuple[asyncio.subprocess.Process, int]]]]:
    """Yield the port of two processes that share it, both up to date, and each process with its admin port."""
    await world.start_engines(2)
    world.api.state.set_table(world.table())
    port, admins = free_port(), (free_port(), free_port())
    started = []
    try:
        for name, admin in zip(("router-0", "router-1"), admins, strict=True):
            started.append((await _start(_environment(world, name), port, "--socket-reuse", "--admin-port", str(admin)), admin))
        for admin in admins:
            await _ready(admin)
        yield port, started
        for process, _ in started:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert {await process.wait() for process, _ in started} <= {0, -signal.SIGKILL}
    finally:
        for process, _ in started:
            if process.returncode is None:
                process.kill()


async def _ask_anew(port: int) -> httpx.Response:
    """Return the answer to a request on a new connection, which the kernel gives to one of the processes."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client:
        return await client.post("/v1/chat/completions", json=_document())


async def _served(admin: int) -> float:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        page = (await client.get(f"http://127.0.0.1:{admin}/metrics")).text
    counts = [
        float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith('fairlead_router_requests_total{outcome="served"')
    ]
    return sum(counts)


async def _figures(admin_port: int) -> dict[str, float]:
    """Return the router's metrics without labels; none while it cannot be reached."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        try:
            text = (await client.get(f"http://127.0.0.1:{admin_port}/metrics")).text
        except httpx.HTTPError:
            return {}
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#") and "{" not in line)
    return {name.removeprefix("fairlead_router_"): float(figure) for name, figure in rows}


async def test_routers_that_share_nothing_but_the_api_ask_one_of_them_and_go_on_when_it_is_killed(world: World) -> None:
    await world.start_engines(2)
    world.api.state.set_table(world.table())
    names = ("router-0", "router-1")
    ports = {name: (free_port(), free_port()) for name in names}
    processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(name: str) -> None:
        environment = _environment(world, name, FAIRLEAD_ROUTER_ASK_HOST="127.0.0.1")
        processes[name] = await _start(environment, ports[name][0], "--admin-port", str(ports[name][1]))

    async def shows(name: str, **figures: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not figures.items() <= (await _figures(ports[name][1])).items():
                await asyncio.sleep(0.05)

    async def answers(name: str) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
            answer = await client.post(f"http://127.0.0.1:{ports[name][0]}/v1/chat/completions", json=_document())
            assert answer.status_code == 200

    decider = decider_of(PoolKey(namespace="default", name="chat"), names)
    (front,) = set(names) - {decider}
    try:
        for name in names:
            await start(name)
        await shows(front, asked_pools=1)
        await answers(front)
        await shows(decider, asking_routers=1, asked_pools=0, met_routers=1)
        await world.api.stop()
        await answers(front)
        await shows(front, asked_pools=1)
        lost = (await _figures(ports[front][1]))["lost_routers_total"]  # one that was slow is lost too, and found again
        processes[decider].kill()
        await processes[decider].wait()
        await answers(front)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await _figures(ports[front][1])).get("lost_routers_total", 0) <= lost:
                await asyncio.sleep(0.05)
        await shows(front, asked_pools=0)
        await world.api.start()
        await start(decider)
        await shows(front, asked_pools=1)
        await answers(front)
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_processes_share_a_port_and_requests_of_a_suspended_one_wait_for_it(world: World) -> None:
    async with _sharing(world) as (port, ((one, one_admin), (_, two_admin))):
        one.send_signal(signal.SIGSTOP)
        try:
            asking = [asyncio.create_task(_ask_anew(port)) for _ in range(32)]
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        finally:
            one.send_signal(signal.SIGCONT)
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}
        counts = [await _served(admin) for admin in (one_admin, two_admin)]
        assert sum(counts) == 32
        assert min(counts) > 0, "the kernel gave connections to both, also to the one that stood still"


async def test_of_two_processes_on_a_port_one_is_killed_or_stopped_and_the_other_gets_all_new_requests(world: World) -> None:
    async with _sharing(world) as (port, ((one, one_admin), (two, _))):
        one.send_signal(signal.SIGKILL)
        await one.wait()
        assert [(await _ask_anew(port)).status_code for _ in range(8)] == [200] * 8
        again = await _start(_environment(world, "router-0"), port, "--socket-reuse", "--admin-port", str(one_admin))
        try:
            await _ready(one_admin)
            two.send_signal(signal.SIGTERM)
            while two.returncode is None:
                assert (await _ask_anew(port)).status_code == 200
        finally:
            again.send_signal(signal.SIGTERM)
            await again.wait()


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"FAIRLEAD_API_URL": ""}, (), "FAIRLEAD_API_URL"),
        ({"FAIRLEAD_MAX_BODY_BYTES": "big"}, (), "FAIRLEAD_MAX_BODY_BYTES: 'big' cannot be used; write a whole number"),
        ({}, ("--host", "203.0.113.7"), "--host/--port: '203.0.113.7:"),
        ({}, ("--admin-port", "70000"), "--admin-port: 70000 is not in the range 0<=x<=65535"),
    ],
)
async def test_bad_settings_are_one_clear_line_and_exit_code_2(
    world: World, changes: dict[str, str], options: tuple[str, ...], message: str
) -> None:
    environment = _environment(world, **changes)
    process = await _start(environment, free_port(), *options)
    assert await process.wait() == 2
    errors = _log(environment).read_text()
    assert errors.startswith(("fairlead router: ", "python -m fairlead_router.main: "))
    assert errors.count("\n") == 1
    assert message in errors


async def test_a_taken_port_is_named(world: World, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = await _start(_environment(world), port)
        assert await process.wait() == 2
    errors = _log(_environment(world)).read_text()
    assert errors.startswith(f"fairlead router: --host/--port: '127.0.0.1:{port}' cannot be used; ")
    assert "in use" in errors


@pytest.fixture
def database_url() -> Iterator[str]:
    with shared_server() as server, fresh_database(server) as url:
        yield url


async def test_a_key_made_at_the_real_api_admits_and_a_revoked_one_is_a_401_within_seconds(world: World, database_url: str) -> None:
    (engine,) = await world.start_engines(1)
    port = free_port()
    async with (
        real_seam(database_url) as seam,
        ControlApi(seam.url, SECRETS["operator"], timeout_seconds=PATIENCE_SECONDS) as control,
        SystemApi(seam.url, seam.operator_token, timeout_seconds=PATIENCE_SECONDS) as operator,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_SECONDS) as client,
    ):
        await StrictSystemApi(operator).put_pool_state(CHAT, a_state(an_instance("a", address=engine.address)))
        told = {"FAIRLEAD_API_URL": seam.url, "FAIRLEAD_API_TOKEN": seam.router_token, "FAIRLEAD_GATEWAY_KEYS_REQUIRED": "1"}
        process = await _start(_environment(world, **told), port)
        try:
            await _ready(port)
            made = await control.create_gateway_key(GatewayKeyRequest(name="team-x", pools=(str(CHAT),)))
            shown = {"authorization": f"Bearer {made.secret}"}

            served = 0

            async def answers(status: int) -> httpx.Response:
                """Return the first answer with this status, which may take the router a moment."""
                nonlocal served
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while True:
                        answer = await client.post("/v1/chat/completions", json=_document(model="tiny"), headers=shown)
                        served += answer.status_code == 200
                        if answer.status_code == status:
                            return answer
                        await asyncio.sleep(0.05)

            assert (await client.post("/v1/chat/completions", json=_document(model="tiny"))).status_code == 401
            assert (await answers(200)).headers["x-fairlead-pool"] == str(CHAT)
            await control.revoke_gateway_key(made.id)
            revoked = await answers(401)
            assert revoked.json()["error"]["code"] == "invalid_api_key"
            assert "revoked" in revoked.json()["error"]["message"]
            assert (await client.get("/v1/models", headers=shown)).status_code == 401
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await control.gateway_key_usage(made.id)).total.requests < served:
                    await asyncio.sleep(0.1)
        finally:
            process.terminate()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await process.wait()
        usage = await control.gateway_key_usage(made.id)
        assert (usage.total.requests, usage.total.prompt_tokens, usage.total.output_tokens) == (served, 8 * served, 3 * served)
        assert sum(point.requests for point in usage.points) == served
        (listed,) = (await control.gateway_keys()).items
        assert listed.last_used_at is not None
        assert (listed.last_day, listed.secret) == (usage.total, None)
    spooled = b"".join(path.read_bytes() for path in (world.directory / "router-0").rglob("*") if path.is_file())
    assert made.secret is not None
    assert made.secret.encode() not in spooled
