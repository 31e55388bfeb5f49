"""Two API processes on one database: each continues the other's work, and shared work is done once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

import httpx
import pytest

from fairlead.reports.batches import Report, RouterState
from fairlead_client.client import ControlApi
from fairlead_client.internal import SystemApi
from fairlead_client.lines import BindingsLine, SyncedLine, TableLine
from fairlead_client.outcomes import Taken
from fairlead_client.problems import ApiProblem, StreamLost
from fairlead_client.report_posts import encode_batch
from fairlead_client.resources.access import AccessRole, LoginLinkRequest, TokenRequest
from fairlead_testing.running.api import BOOTSTRAP, CHAT, SECRETS, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.patient_transport import PatientTransport
from fairlead_testing.running.postgres import fresh_database
from fairlead_testing.running.strict_system_api import StrictSystemApi, batch_of
from fairlead_testing.waiting import PATIENCE_SECONDS
from processkube.testing.ports import free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both processes with their addresses."""

    processes: tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"]
    urls: tuple[str, str]

    @asynccontextmanager
    async def system(self, role: str) -> AsyncIterator[SystemApi]:
        async with SystemApi(self.urls, SECRETS[role], timeout_seconds=PATIENCE_SECONDS, transport=PatientTransport()) as api:
            yield api

    def person(self, number: int, token: str = SECRETS["admin"]) -> ControlApi:
        """Return a client of only one of the two."""
        return ControlApi(self.urls[number], token, PatientTransport(), timeout_seconds=PATIENCE_SECONDS)


@contextmanager
def api_process(database_url: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    tokens = ",".join(":".join(token) for token in BOOTSTRAP)
    environment = {**os.environ, "FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_BOOTSTRAP_TOKENS": tokens, "FAIRLEAD_WEB": "0"}
    process = subprocess.Popen([sys.executable, "-m", "fairlead_api.main", "--port", str(port)], env=environment)
    try:
        yield process
    finally:
        process.kill()  # also one that stands still
        process.wait(PATIENCE_SECONDS)


@contextmanager
def two_processes(database_url: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        ports = (free_port(), free_port())
        one, two = (stack.enter_context(api_process(database_url, port)) for port in ports)
        urls = (f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
        deadline = time.monotonic() + PATIENCE_SECONDS
        for url in urls:
            while not _is_ready(url):
                assert time.monotonic() < deadline, f"{url} is not ready"
                time.sleep(0.1)
        yield Pair(processes=(one, two), urls=urls)


@pytest.fixture(scope="module")
def pair(postgres_url: str) -> Iterator[Pair]:
    """Yield the pair for tests that end neither process, as processes take long to start."""
    with fresh_database(postgres_url) as database_url, two_processes(database_url) as found:
        yield found


@pytest.fixture
def mortal_pair(database_url: str) -> Iterator[Pair]:
    with two_processes(database_url) as found:
        yield found


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.HTTPError:
        return False


async def _post(api: SystemApi, report: Report, seconds: float) -> bool:
    """Send the report once; return whether it was taken."""
    batches = [encode_batch(batch_of(report))]
    return isinstance(await api.post_reports(batches, RouterState(sent_at=report.sent_at), seconds=seconds), Taken)


async def test_people_sign_in_at_one_process_work_at_the_other_and_are_signed_out_of_both(pair: Pair) -> None:
    async with pair.person(0) as first, pair.person(1) as second:
        link = await first.create_login_link(LoginLinkRequest(role=AccessRole.ADMIN))
        session = await second.login(link.token)
        assert (await first.with_token(session.token).whoami()).role is AccessRole.ADMIN
        made = await first.create_token(TokenRequest(name="someone", role=AccessRole.VIEWER, days=1))
        assert (await second.with_token(made.secret).whoami()).subject == "someone"
        await second.with_token(session.token).revoke_token(made.id)
        with pytest.raises(ApiProblem, match="401"):
            await first.with_token(made.secret).whoami()
        await first.with_token(session.token).logout()
        with pytest.raises(ApiProblem, match="401"):
            await second.with_token(session.token).whoami()
        assert (await first.audit_verification()).intact


async def test_a_stream_goes_on_at_the_other_process_when_its_own_is_killed_and_misses_nothing(mortal_pair: Pair) -> None:
    pair = mortal_pair
    async with pair.system("system-router") as router_api, pair.system("system-operator") as operator_api:
        operator, router = StrictSystemApi(operator_api), StrictSystemApi(router_api)
        await operator.put_pool_state(CHAT, a_state(an_instance("a")))
        stream = router_api.stream("router-9", silence_seconds=PATIENCE_SECONDS)
        async for line in stream:
            if isinstance(line, SyncedLine):
                break
        pair.processes[0].kill()
        pair.processes[0].wait(PATIENCE_SECONDS)  # until then a connection kept for the next request may look alive
        with pytest.raises(StreamLost):
            async for _ in stream:
                pass
        await operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b"), version=2))
        await router.post_report(a_report("r2", bindings=(a_binding("after", "b"),)))
        tables, sessions = [], []
        async for line in router_api.stream("router-9", silence_seconds=PATIENCE_SECONDS):
            if isinstance(line, TableLine):
                tables.append([entry.id for entry in line.table.instances])
            elif isinstance(line, BindingsLine):
                sessions += [binding.session for binding in line.bindings]
            elif isinstance(line, SyncedLine):
                break
        assert (tables, set(sessions) & {"after"}) == ([["a", "b"]], {"after"})


async def test_a_report_that_a_suspended_process_may_have_taken_is_stored_once(pair: Pair) -> None:
    one = pair.processes[0]
    report = a_report("r1", bindings=(a_binding("s", "a"),))
    async with (
        pair.system("system-operator") as operator_api,
        pair.system("system-router") as router_api,
        SystemApi(pair.urls[0], SECRETS["system-router"], timeout_seconds=PATIENCE_SECONDS, transport=PatientTransport()) as faithful,
    ):
        await StrictSystemApi(operator_api).put_pool_state(CHAT, a_state(an_instance("a")))
        one.send_signal(signal.SIGSTOP)
        try:
            waiting = asyncio.create_task(_post(faithful, report, PATIENCE_SECONDS))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await _post(router_api, report, 5.0):
                    pass
        finally:
            one.send_signal(signal.SIGCONT)
        assert await waiting
        async with pair.person(1) as person:
            assert (await person.sessions({})).total == 1
            detail = await person.session(CHAT, "s")
            assert [holder.version for holder in detail.history] == [1]
