"""Routers over real sockets: they find each other, one decides, and each can go at any time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.reports.rejections import RejectionReason
from fairlead.routing.contracts.schedulers import Dispatch, Refusal
from fairlead.routing.contracts.sharing import decider_of
from fairlead.routing.scheduling.shared_scheduler import SharedScheduler
from fairlead.tables import EarlyRejectionFacts, PoolKey
from fairlead_process.clock import SteadyClock
from fairlead_router.deciding import callers, company, connections
from fairlead_router.deciding.company import Company
from fairlead_router.deciding.decider import OtherRouter
from fairlead_router.deciding.frames import PROTOCOL, Body, Challenge, Frame, Hello, Welcome, encode, named
from fairlead_router.deciding.listed import Directory, Folder, Listed, ToldRouters
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.account import KEEP_REPORTING_SECONDS
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.protocols.answers import Usage
from fairlead_testing.builders.routing import POOL, entry, request, table
from fairlead_testing.waiting import PATIENCE_SECONDS

TABLE = table([entry("i0")], policy="min-ttft", speed=1000.0)
NAMES = ("router-0", "router-1", "router-2")


def listed(router: str, port: int, secret: str = "x") -> Listed:
    return Listed(router=router, host="127.0.0.1", port=port, secret=secret, protocol=PROTOCOL)


class Member:
    """One router's pools and its company."""

    def __init__(self, directory: Directory, name: str, ahead_seconds: float = 0.0) -> None:
        clock = SteadyClock()
        self.now: Callable[[], float] = lambda: clock() + ahead_seconds
        self.metrics = RouterMetrics()
        self.pools = Pools(lambda one: SharedScheduler(one, name, hash(name) & 0xFFFF, sample_rate=1.0), self.metrics, self.now)
        self.pools.apply(TABLE)
        self.name = name
        self.company = Company([directory], name, self.pools, self.metrics, self.now)

    @property
    def others(self) -> tuple[OtherRouter, ...]:
        return self.company._meeting.others()

    @property
    def pool(self) -> Pool:
        found = self.pools.get(POOL)
        assert found is not None
        return found

    def waiting(self) -> int:
        assert isinstance(self.pool.scheduler, SharedScheduler)
        return self.pool.scheduler.waiting()

    def prefilling(self) -> int:
        assert isinstance(self.pool.scheduler, SharedScheduler)
        return sum(load.prefilling for load in self.pool.scheduler.loads())


class Together:
    """Three routers; `decider` decides for the pool."""

    def __init__(self, folder: Path, told: bool = False) -> None:
        self.folder = folder
        self.told = {name: ToldRouters() for name in NAMES if told}
        """What the control API would tell each router, if they do not share the folder."""
        self.tells: dict[str, Sequence[str]] = dict.fromkeys(NAMES, NAMES)
        """Of which routers it tells each."""
        self.members = {name: Member(self.told.get(name) or Folder(folder), name, 3600.0 * number) for number, name in enumerate(NAMES)}
        self.decider = self.members[decider_of(POOL, NAMES)]
        self.fronts = [member for member in self.members.values() if member is not self.decider]

    async def until(self, holds: Callable[[], bool], *, looking: bool = True) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                for name, told in self.told.items():
                    told.hear({other: own for other in self.tells[name] if (own := self.told[other].own) is not None})
                for member in self.members.values() if looking else ():
                    await member.company.look()
                await asyncio.sleep(0.01)

    async def meet(self) -> None:
        await self.until(lambda: self.decider.metrics.asking_routers == 2)


@asynccontextmanager
async def routers(folder: Path, monkeypatch: pytest.MonkeyPatch, *, told: bool) -> AsyncIterator[Together]:
    for limit in ("SILENCE_SECONDS", "GREETING_SECONDS"):
        monkeypatch.setattr(connections, limit, PATIENCE_SECONDS)  # nobody is gone because this machine is busy
    monkeypatch.setattr(company, "LATE_SECONDS", PATIENCE_SECONDS)
    made = Together(folder, told)
    yield made
    for member in made.members.values():
        member.company.close()


@pytest.fixture
async def together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Together]:
    async with routers(tmp_path / "routers", monkeypatch, told=False) as made:
        yield made


@pytest.fixture
async def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Together]:
    async with routers(tmp_path / "routers", monkeypatch, told=True) as made:
        yield made


async def decided(member: Member, name: str) -> str:
    """Submit a request, wait for its instance and return it."""
    ticket = member.pool.account.submit(request(name, 1000, at=member.now()), member.now())
    async with asyncio.timeout(PATIENCE_SECONDS):
        verdict = await ticket.decided()
    assert isinstance(verdict, Dispatch)
    assert verdict.request is ticket.request
    return verdict.instance


def end(member: Member, name: str) -> None:
    ticket = member.pool.account.tickets[name]
    member.pool.account.first_token(ticket, member.now())
    member.pool.account.complete(ticket, member.now(), Usage(5, 0, 1000))


async def test_a_request_is_sent_where_another_router_decides(together: Together) -> None:
    await together.meet()
    front = together.fronts[0]
    assert await decided(front, "a") == "i0"
    assert (front.prefilling(), together.decider.prefilling()) == (1, 1)
    assert (front.pool.account.in_flight(), [row.in_flight for row in together.decider.pool.account.in_flight()]) == ((), [1])
    assert front.pool.choice.least_loaded((), front.now()) == "i0", "requests that need no decision still find an instance"
    end(front, "a")
    await together.until(lambda: together.decider.prefilling() == 0)
    assert not front.pool.account.tickets


async def test_an_instance_gets_the_next_prefill_from_whichever_router_has_it(together: Together) -> None:
    await together.meet()
    first, second = together.fronts
    await decided(first, "a")
    waiting = asyncio.create_task(decided(second, "b"))
    await asyncio.sleep(0.05)
    assert not waiting.done(), "an instance takes one prefill at a time"
    end(first, "a")
    assert await waiting == "i0"


async def test_clocks_that_differ_by_hours_do_not_make_requests_late_or_early(together: Together) -> None:
    await together.meet()
    for front in together.fronts:
        await decided(front, f"of {front.metrics}")
        end(front, f"of {front.metrics}")
    await together.until(lambda: together.decider.prefilling() == 0)
    scheduler = together.decider.pool.scheduler
    found: list[float] = []

    def completed() -> bool:
        records = scheduler.take_records(together.decider.now(), final=True)
        found.extend(record.ttft_seconds for record in records.decisions if record.ttft_seconds is not None)
        return len(found) == 2

    await together.until(completed)
    assert all(0 <= ttft < PATIENCE_SECONDS for ttft in found), found


async def test_what_the_first_word_took_on_its_way_makes_no_request_come_after_its_verdict(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay of a message bounds the difference of the clocks, and the next messages correct the bound."""
    for member in together.members.values():
        now = member.now
        monkeypatch.setattr(member.company, "_now", lambda now=now: now() - 5.0)
    await together.meet()
    front = together.fronts[0]
    await decided(front, "a")
    submitted = together.decider.pool.scheduler
    assert isinstance(submitted, SharedScheduler)
    end(front, "a")
    found: list[float] = []

    def completed() -> bool:
        records = submitted.take_records(together.decider.now(), final=True)
        found.extend(record.queued_seconds for record in records.decisions if record.queued_seconds is not None)
        return bool(found)

    await together.until(completed)
    assert all(0 <= queued < PATIENCE_SECONDS for queued in found), found


async def test_when_the_decider_is_killed_each_router_goes_on(together: Together) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(decider, "own")
    waiting = asyncio.create_task(decided(front, "a"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    for connection in tuple(decider.company._callers._callers):
        connection.close()
    assert await waiting == "i0", "it was decided where it came to"


async def test_a_pool_that_cannot_be_taken_back_keeps_no_other_and_no_dead_router(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = (PoolKey(namespace="default", name=f"other-{number}") for number in range(100))
    key = next(key for key in keys if decider_of(key, NAMES) == together.decider.name)
    for member in together.members.values():
        member.pools.apply(replace(TABLE, pool=key, uid="other"))
    decider = together.decider
    await together.until(lambda: all(front.metrics.asked_pools == 2 for front in together.fronts))

    def failing(*_: object) -> None:
        raise ZeroDivisionError("in a scheduler")

    for member in together.members.values():
        monkeypatch.setattr(member.pool.scheduler, "ask_nobody" if member is not decider else "leave", failing)
    for connection in tuple(decider.company._callers._callers):
        with pytest.raises(ZeroDivisionError):
            connection.close()
    assert [pool.account.asking_routers for pool in decider.pools.all()] == [0, 0]
    await together.until(lambda: all(front.metrics.lost_routers == 1 for front in together.fronts), looking=False)
    assert [pool.account.is_decided_elsewhere for front in together.fronts for pool in front.pools.all()] == [False] * 4


async def test_a_decider_that_stops_gives_requests_back_and_another_decides(together: Together) -> None:
    await together.meet()
    decider = together.decider
    await decided(decider, "own")
    waiting = [asyncio.create_task(decided(front, f"a{number}")) for number, front in enumerate(together.fronts)]
    await asyncio.sleep(0.05)
    decider.company.decide_no_more()
    decider.pools.shut_down()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await asyncio.gather(*waiting) == ["i0", "i0"]
    del together.members[next(name for name, member in together.members.items() if member is decider)]
    decider.company.close()
    await together.until(lambda: sum(member.metrics.asked_pools for member in together.fronts) == 1)
    heir = next(member for member in together.fronts if not member.metrics.asked_pools)
    await together.until(lambda: heir.prefilling() == 2)


async def test_a_pool_that_the_decider_does_not_have_is_decided_by_each(together: Together) -> None:
    together.decider.pools.delete(POOL)
    await together.until(lambda: all(member.metrics.asked_pools for member in together.fronts))
    assert await decided(together.fronts[0], "a") == "i0"


async def test_a_pool_that_refuses_after_prefill_is_not_shared(together: Together) -> None:
    for member in together.members.values():
        member.pools.apply(replace(TABLE, version=2, early_rejection=EarlyRejectionFacts(mode="AfterPrefill")))
    await together.until(lambda: all(len(member.others) == 2 for member in together.members.values()))
    assert [member.metrics.asked_pools for member in together.members.values()] == [0, 0, 0]
    assert await decided(together.fronts[0], "a") == "i0"


async def test_a_deleted_pool_is_asked_for_no_more(together: Together) -> None:
    await together.meet()
    for member in together.members.values():
        member.pools.delete(POOL)
    await together.until(lambda: together.decider.metrics.asking_routers == 0)
    assert all(not other.asked for member in together.fronts for other in member.others)


async def test_whoever_does_not_know_the_secret_is_not_heard(together: Together) -> None:
    await together.meet()
    folder = Folder(together.folder)
    real = folder.listed()[decider_of(POOL, NAMES)]
    elsewhere = Folder(together.folder.parent / "elsewhere")
    stranger = Member(elsewhere, "stranger")
    elsewhere.enter(replace(real, secret="guessed"))
    for _ in range(5):
        await stranger.company.look()
        await asyncio.sleep(0.02)
    assert stranger.metrics.asked_pools == 0
    assert together.decider.metrics.asking_routers == 2
    stranger.company.close()


async def test_files_of_routers_that_are_gone_or_make_no_sense_harm_nobody(together: Together) -> None:
    folder = Folder(together.folder)
    folder.enter(listed("killed", 9))
    folder.enter(replace(listed("newer", 9), protocol=PROTOCOL + 1))
    dumb = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    folder.enter(listed("dumb", dumb.sockets[0].getsockname()[1]))
    (together.folder / "noise.json").write_bytes(b"{")
    await together.meet()
    modes = {path.stat().st_mode & 0o077 for path in together.folder.glob("*.json") if path.name != "noise.json"}
    assert modes == {0}, "only their user reads the secrets"
    assert [member.metrics.lost_routers for member in together.members.values()] == [0, 0, 0], "what was never met is not lost"
    dumb.close()


async def test_requests_of_a_router_that_leaves_are_reported_by_somebody_at_every_moment(together: Together) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(front, "a")
    for other in front.others:
        other.connection.close()
    assert [row.in_flight for row in front.pool.account.in_flight()] == [1]
    await together.until(lambda: decider.prefilling() == 0, looking=False)
    assert [row.in_flight for row in decider.pool.account.in_flight()] == [1], "until the other has told of it"
    decider.pool.tick(decider.now() + KEEP_REPORTING_SECONDS)
    await together.until(lambda: decider.prefilling() == 1)
    assert [row.in_flight for row in decider.pool.account.in_flight()] == [1]


async def test_a_router_that_connects_anew_takes_the_place_of_its_old_connection(together: Together) -> None:
    await together.meet()
    front = next(name for name, member in together.members.items() if member is together.fronts[0])
    again = together.members[front] = Member(Folder(together.folder), front)
    await together.until(lambda: again.metrics.asked_pools == 1)
    asking = together.decider.company._callers._callers.values()
    assert [caller.router for caller in asking].count(front) == 1
    together.fronts[0].company.close()


async def test_a_router_whose_file_is_taken_away_writes_it_again(together: Together) -> None:
    await together.meet()
    for path in together.folder.glob("*.json"):
        path.unlink()
    await together.until(lambda: len(Folder(together.folder).listed()) == len(NAMES))
    await together.meet()


async def test_a_router_that_says_nothing_for_long_is_taken_for_gone(together: Together) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(decider, "own")
    waiting = asyncio.create_task(decided(front, "a"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    for other in front.others:
        other.connection.heard_at -= 2 * PATIENCE_SECONDS
    await front.company.look()
    assert await waiting == "i0"
    assert front.metrics.lost_routers == 2


async def test_whoever_got_the_port_of_a_router_that_died_is_never_asked(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def thief(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(4096))
        writer.write(encode(Frame("", Challenge(nonce=b"n"))) + encode(Frame("", Welcome(code=b"guessed"))))
        with contextlib.suppress(ConnectionError):
            heard.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(thief, "127.0.0.1", 0)
    alone = Member(Folder(tmp_path), "alone")
    for number in range(4):
        Folder(tmp_path).enter(listed(f"dead-{number}", server.sockets[0].getsockname()[1], f"secret of {number}"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(heard) < 8:
            await alone.company.look()
            assert alone.metrics.asked_pools == 0
            await asyncio.sleep(0.01)
    assert all(b"secret" not in said for said in heard), "the secret is told to nobody"
    alone.company.close()
    server.close()


async def test_files_of_another_user_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    folder.enter(listed("a", 9))
    assert set(folder.listed()) == {"a"}
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert folder.listed() == {}


async def test_a_decider_whose_pool_is_deleted_gives_requests_back(together: Together) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(decider, "own")
    waiting = asyncio.create_task(decided(front, "a"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    decider.pools.delete(POOL)
    await decider.company.look()
    assert await waiting == "i0"


async def test_requests_of_a_router_that_begins_to_ask_are_reported_by_somebody_at_every_moment(together: Together) -> None:
    front, third = together.fronts
    del together.members[next(name for name, member in together.members.items() if member is third)]
    await decided(front, "before")
    await together.until(lambda: together.decider.metrics.asking_routers == 1)
    assert front.pool.account.is_decided_elsewhere
    assert [(row.in_flight, row.waiting) for row in front.pool.account.in_flight()] == [(1, 0)], "until the decider has told of it"
    front.pool.tick(front.now() + KEEP_REPORTING_SECONDS)
    assert front.pool.account.in_flight() == ()


async def test_all_that_was_in_flight_is_kept_when_two_routers_leave_shortly_after_each_other(together: Together) -> None:
    pool, now = together.decider.pool, together.decider.now()
    together.decider.pools.apply(replace(TABLE, version=2, instances=(entry("i0"), entry("i1"))))
    first = pool.account.submit(request("first", 1000, at=now), now)
    pool.account._keep_reporting(now)
    second = pool.account.submit(request("second", 1000, at=now), now)
    pool.account._keep_reporting(now)
    assert {verdict.instance for verdict in (first.verdict, second.verdict) if isinstance(verdict, Dispatch)} == {"i0", "i1"}
    for ticket in (first, second):
        pool.account.cancel(ticket, now)
    assert {row.instance: row.in_flight for row in pool.account.in_flight()} == {"i0": 1, "i1": 1}


async def test_a_pool_deleted_and_made_again_at_once_is_decided_for_as_before(together: Together) -> None:
    await together.meet()
    front = together.fronts[0]
    await decided(front, "a")
    old = front.pool
    for member in together.members.values():
        member.pools.delete(POOL)
        member.pools.apply(replace(TABLE, uid="another"))
    await together.until(lambda: together.decider.pool.account.asking_routers == 2)
    assert front.pool.account.is_decided_elsewhere
    assert not old.account.is_decided_elsewhere, "its last requests are reported where they are"
    assert [row.in_flight for row in old.account.in_flight()] == [1]


async def test_a_verdict_that_comes_after_another_changes_nothing(together: Together) -> None:
    await together.meet()
    front = together.fronts[0]
    await decided(front, "a")
    other = next(other for other in front.others if other.asked)
    late = Refusal(request=named("a"), reason=RejectionReason.QUEUE_FULL, status=429, retry_after_seconds=1.0, message="late")
    other._hear(other.connection, Frame(str(POOL), late))
    assert front.prefilling() == 1
    assert front.metrics.accounting_errors == 0


async def test_a_decider_that_falls_silent_is_left_even_when_the_folder_cannot_be_written(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(decider, "own")
    waiting = asyncio.create_task(decided(front, "a"))
    await asyncio.sleep(0.05)
    for path in together.folder.glob("*.json"):
        path.unlink()

    def full(folder: Folder, own: Listed) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "enter", full)
    for other in front.others:
        other.connection.heard_at -= 2 * PATIENCE_SECONDS
    with pytest.raises(OSError, match="No space"):
        await front.company.look()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await waiting == "i0"


async def test_a_router_that_says_twice_who_it_is_is_not_heard_any_more(together: Together) -> None:
    await together.meet()
    asking = together.decider.company._callers
    connection, caller = next(iter(asking._callers.items()))
    again: Body = Hello(protocol=PROTOCOL, router=caller.router, nonce=b"n", now=0.0)
    asking._hear(connection, Frame("", again))
    assert not connection.is_open
    assert connection not in asking._callers


def suspended(member: Member, seconds: float) -> None:
    """Make the last word from each caller this many seconds older, as if the router had been suspended since then."""
    for connection in member.company._callers._callers:
        connection.heard_at -= seconds


def decisions(member: Member) -> list[str]:
    return [record.request for record in member.pool.scheduler.take_records(member.now(), final=True).decisions]


async def test_a_decider_that_wakes_up_decides_nothing_that_was_decided_without_it(together: Together) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(decider, "own")
    suspended(decider, PATIENCE_SECONDS)
    waiting = asyncio.create_task(decided(front, "a"))
    assert await waiting == "i0", "its word came to a decider that had been away, and was not heard"
    end(front, "a")
    assert "a" in decisions(front)
    assert "a" not in decisions(decider)


async def test_what_waits_at_a_decider_that_wakes_up_is_not_refused_or_sent_by_it(together: Together) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(decider, "own")
    waiting = asyncio.create_task(decided(front, "a"))
    await together.until(lambda: decider.waiting() == 1)
    suspended(decider, PATIENCE_SECONDS)
    decider.company.let_stale_go()
    assert decider.waiting() == 0, "before anything else is decided"
    assert await waiting == "i0"


@pytest.mark.parametrize("said", [b"", b"\0\0\0\2\x91", b"\0\0\x10\0" + b"x" * 5000], ids=["nothing", "in drops", "much"])
async def test_a_stranger_is_neither_waited_for_nor_listened_to(together: Together, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    await together.meet()
    monkeypatch.setattr(connections, "GREETING_SECONDS", 0.05)
    asking = together.decider.company._callers
    port = Folder(together.folder).listed()[together.decider.name].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for byte in said[:6]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.005)
        writer.write(said[6:])
        await together.until(lambda: reader.at_eof() or reader.exception() is not None)
        assert await reader.read() == b"", "and it learns nothing"
    assert not asking._strangers
    assert together.decider.metrics.asking_routers == 2
    writer.close()


async def test_many_strangers_keep_no_router_out(together: Together, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MOST_STRANGERS", 4)
    decider = together.decider
    await decider.company.look()
    port = Folder(together.folder).listed()[decider.name].port
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
    await together.until(lambda: len(decider.company._callers._strangers) == 4)
    await together.meet()
    for _, writer in crowd:
        writer.close()


async def test_routers_that_the_control_api_tells_of_each_other_decide_as_one(apart: Together) -> None:
    await apart.meet()
    first, second = apart.fronts
    await decided(first, "a")
    waiting = asyncio.create_task(decided(second, "b"))
    await apart.until(lambda: apart.decider.waiting() == 1)
    end(first, "a")
    assert await waiting == "i0"
    await apart.until(lambda: [member.metrics.met_routers for member in apart.members.values()] == [2, 2, 2])


async def test_while_the_control_api_is_away_routers_go_on_asking(apart: Together) -> None:
    await apart.meet()
    apart.told.clear()
    for _ in range(5):
        for member in apart.members.values():
            await member.company.look()
    assert await decided(apart.fronts[0], "a") == "i0"
    assert apart.decider.prefilling() == 1


async def test_where_lists_differ_each_request_has_one_decider_and_is_reported_by_one(apart: Together) -> None:
    """The last router does not know the first by rank, and therefore asks the second, which asks the first."""
    ranks = [apart.decider.name]
    ranks.append(decider_of(POOL, [name for name in NAMES if name not in ranks]))
    ranks += [name for name in NAMES if name not in ranks]
    first, second, last = (apart.members[name] for name in ranks)
    apart.tells[ranks[0]] = (ranks[0],)
    apart.tells[ranks[1]] = ranks[1:]
    apart.tells[ranks[2]] = ranks[1:]
    await apart.until(lambda: second.metrics.asking_routers == 1)
    await decided(last, "a")
    assert (second.prefilling(), [row.in_flight for row in second.pool.account.in_flight()]) == (1, [1])
    apart.tells[ranks[0]] = apart.tells[ranks[1]] = NAMES
    await apart.until(
        lambda: (
            second.pool.account.is_decided_elsewhere and not last.pool.account.is_decided_elsewhere and first.metrics.asking_routers == 1
        )
    )
    await apart.until(lambda: second.metrics.asking_routers == 0)  # who asks is not asked
    assert last.prefilling() == 1
    assert [row.in_flight for row in last.pool.account.in_flight()] == [1]
    end(last, "a")
    apart.tells[ranks[2]] = NAMES
    await apart.until(lambda: first.metrics.asking_routers == 2)
    assert await decided(last, "b") == "i0"


async def test_requests_for_which_a_router_decides_count_in_the_metrics_of_the_one_that_has_them(together: Together) -> None:
    await together.meet()
    front, decider = together.fronts[0], together.decider
    await decided(front, "a")
    assert [sum(row.in_flight for row in member.pool.scheduler.carried()) for member in (front, decider)] == [1, 0]
    waiting = asyncio.create_task(decided(decider, "own"))
    await together.until(lambda: decider.waiting() == 1)
    assert sum(row.in_flight for row in decider.pool.scheduler.carried()) == 1
    end(front, "a")
    await waiting
