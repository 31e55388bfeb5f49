"""Reports are stored once however they are cut and repeated, with receipts in their order; then a router's goodbye."""

from dataclasses import replace

import httpx
import msgspec
import pytest

from fairlead.reports.batches import AskAddress, Report, ReportBatch, ReportReceipt, RouterGone, RouterState
from fairlead.reports.engines import KnownCache, LearntFigure, Quantity
from fairlead_client import internal_paths
from fairlead_client.outcomes import Refused, Taken
from fairlead_client.report_posts import encode_batch
from fairlead_testing.running.api import CHAT, a_binding, a_report, a_state, an_instance
from fairlead_testing.running.seams import Clients, Seam
from fairlead_testing.running.strict_system_api import batch_of
from fairlead_testing.waiting import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
async def pool(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))


def first(report: Report) -> RouterState:
    return RouterState(sent_at=report.sent_at)


def timeless(receipt: ReportReceipt) -> ReportReceipt:
    """Return a receipt without the API's time, which only the receipt of a first post has."""
    return replace(receipt, at=None)


async def test_neighbours_have_receipts_in_their_order_and_repeated_ones_say_so(clients: Clients) -> None:
    reports = [a_report(f"r{number}", bindings=(a_binding(f"s{number}", "a"),)) for number in range(4)]
    receipts = await clients.router.post_reports(*reports[:3])
    assert tuple(map(timeless, receipts)) == tuple(ReportReceipt(id=f"r{number}", duplicate=False, live_routers=1) for number in range(3))
    receipts = await clients.router.post_reports(*reports[2:])
    assert [(receipt.id, receipt.duplicate) for receipt in receipts] == [("r2", True), ("r3", False)]
    seen = await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    assert [found.bound_sessions for found in seen.instances] == [4, 0]


async def test_who_comes_second_hears_who_was_first(clients: Clients) -> None:
    await clients.router.post_report(a_report("r1", "router-0", bindings=(a_binding("s", "a", id="mine"),)))
    late = (a_binding("s", "b", id="yours"), a_binding("t", "b", id="free"))
    receipt = await clients.router.post_report(a_report("r2", "router-1", bindings=late))
    assert receipt.lost == ("yours",)
    (winner,) = receipt.conflicts
    assert (winner.pool, winner.session, winner.instance, winner.version, winner.change) == (CHAT, "s", "a", 1, "mine")
    moved = a_binding("s", "b", id="moved", previous="a", based_on=1)
    assert (await clients.router.post_report(a_report("r3", "router-1", bindings=(moved,)))).lost == ()


async def test_a_router_without_news_says_that_it_lives(clients: Clients) -> None:
    assert timeless(await clients.router.post_report(a_report("r1"))) == ReportReceipt(id="r1", duplicate=False, live_routers=1)
    assert (await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))).live_routers == 1


def asked_at(host: str, **changes: object) -> AskAddress:
    return replace(AskAddress(host=host, port=9100, secret="s" * 64, protocol=2), **changes)  # type: ignore[arg-type]


async def test_routers_that_can_be_asked_are_told_of_each_other_and_others_are_told_of_nobody(clients: Clients) -> None:
    first, second = asked_at("10.0.0.1"), asked_at("2001:db8::2", port=9101)
    assert (await clients.router.post_report(replace(a_report("r0", "router-0"), asked_at=first))).routers == {"router-0": first}
    assert (await clients.router.post_report(a_report("r1", "router-1"))).routers is None
    told = await clients.router.post_report(replace(a_report("r2", "router-2"), asked_at=second))
    assert told.routers == {"router-0": first, "router-2": second}
    again = asked_at("10.0.0.1", secret="t" * 64)
    await clients.router.post_report(replace(a_report("r3", "router-0"), asked_at=again))
    told = await clients.router.post_report(replace(a_report("r4", "router-2"), asked_at=second))
    assert told.routers == {"router-0": again, "router-2": second}


async def test_a_router_tells_what_it_knows_of_engines(clients: Clients) -> None:
    cache = KnownCache(pool=CHAT, instance="a", state="current")
    figure = LearntFigure(
        pool=CHAT,
        instance="a",
        quantity=Quantity.DECODE,
        learnt=0.03,
        declared=None,
        samples=1,
        error=None,
        declared_error=None,
        in_use=False,
    )
    knowing = a_report("r1", known_caches=(cache,), learnt_figures=(figure, replace(figure, instance=None, quantity="of a newer router")))
    assert timeless(await clients.router.post_report(knowing)) == ReportReceipt(id="r1", duplicate=False, live_routers=1)


@pytest.mark.parametrize(
    "ids", [("r1", "r1"), ("", "r2"), ("x" * 2000, "r2")], ids=["the same twice", "without an id", "an id beyond all bounds"]
)
async def test_reports_that_no_api_can_take_are_refused_for_ever(clients: Clients, ids: tuple[str, str]) -> None:
    batches = [encode_batch(ReportBatch(id=name, router="router-0")) for name in ids]
    outcome = await clients.router_api.post_reports(batches, first(a_report("now")))
    assert isinstance(outcome, Refused)


async def test_reports_of_two_routers_do_not_go_together(clients: Clients) -> None:
    batches = [encode_batch(batch_of(a_report("r1", "router-0"))), encode_batch(batch_of(a_report("r2", "router-1")))]
    assert isinstance(await clients.router_api.post_reports(batches, first(a_report("now"))), Refused)


async def test_what_is_no_json_is_refused_and_the_next_post_is_taken(clients: Clients) -> None:
    state = first(a_report("now"))
    assert isinstance(await clients.router_api.post_reports([b"{not json"], state), Refused)
    good = encode_batch(batch_of(a_report("r1")))
    taken = await clients.router_api.post_reports([good], state)
    assert isinstance(taken, Taken)
    assert [timeless(one) for one in taken.answer] == [ReportReceipt(id="r1", duplicate=False, live_routers=1)]


async def test_a_router_of_before_and_one_to_come_are_understood(seam: Seam, clients: Clients) -> None:
    """The older router omits fields that it does not have; the newer one sends fields that are unknown here."""
    sent_at = a_report("now").sent_at
    binding = msgspec.to_builtins(a_binding("s", "a")) | {"newer": {"deep": [1]}}
    bodies = [
        [{"sent_at": sent_at, "acknowledged": [], "in_flight": [], "id": "old", "router": "router-0"}],
        [{"id": "new", "router": "router-0", "sent_at": sent_at, "bindings": [binding], "newer": 1}],
    ]
    headers = {"authorization": f"Bearer {seam.router_token}"}
    async with httpx.AsyncClient(base_url=seam.url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False) as http:
        for body in bodies:
            answer = await http.post(internal_paths.REPORTS, json=body)
            assert answer.status_code == 200
            assert answer.json()[0]["duplicate"] is False
    seen = await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))
    assert [found.bound_sessions for found in seen.instances] == [1, 0]


async def test_a_goodbye_may_be_said_twice_and_by_a_router_that_never_reported(clients: Clients) -> None:
    now = a_report("now").sent_at
    for router in ("router-0", "router-0", "router-7"):
        assert await clients.router_api.post_router_gone(RouterGone(router=router, at=now)) == Taken(None)
    assert (await clients.operator.put_pool_state(CHAT, a_state(an_instance("a"), an_instance("b")))).live_routers == 0


async def test_every_receipt_tells_how_many_routers_live(clients: Clients) -> None:
    def told(receipt: ReportReceipt) -> int | None:
        return receipt.live_routers

    assert told(await clients.router.post_report(a_report("r1", "router-0"))) == 1
    assert told(await clients.router.post_report(a_report("r2", "router-1"))) == 2
    assert told(await clients.router.post_report(a_report("r3", "router-0"))) == 2
    assert told(await clients.router.post_report(a_report("r2", "router-1"))) == 2, (
        "a report that comes again is answered as things are now"
    )
    await clients.router_api.post_router_gone(RouterGone(router="router-1", at=a_report("now").sent_at))
    assert told(await clients.router.post_report(a_report("r4", "router-0"))) == 1
