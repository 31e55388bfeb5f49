"""Failed logins are limited, also if many are tried at once."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from fairlead_api.access.access import Access
from fairlead_api.access.logins import FAILED_LOGINS, Logins
from fairlead_api.infra.callers import Login
from fairlead_api.infra.errors import NotAuthenticated, TooMany

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class SlowStore:
    """A store that knows no login link, and answers when a test lets it."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0

    async def redeem(self, *_: object) -> None:
        self.asked += 1
        await self.may_answer.wait()

    async def record(self, *_: object) -> None: ...


async def outcome(logins: Logins) -> str:
    try:
        await logins.login("fll_of-nobody", Login(address="192.0.2.1", request_id="r"), NOW)
    except (NotAuthenticated, TooMany) as error:
        return type(error).__name__
    raise AssertionError("nobody knows this link")


@pytest.mark.parametrize("waits", [True, False])
async def test_tries_at_once_fail_no_more_often_than_one_by_one_whoever_hangs_up(waits: bool) -> None:
    store = SlowStore()
    access = cast(Access, cast(Any, store))
    store.note = store.record  # type: ignore[attr-defined]
    logins = Logins(cast(Any, store), access, lambda: "secret")
    tries = [asyncio.create_task(outcome(logins)) for _ in range(5 * FAILED_LOGINS)]
    await asyncio.sleep(0)
    assert store.asked == 5 * FAILED_LOGINS, "a good link may be among them"
    for one in () if waits else tries:
        one.cancel()
    store.may_answer.set()
    found = await asyncio.gather(*tries, return_exceptions=True)
    if waits:
        assert Counter(found) == {"NotAuthenticated": FAILED_LOGINS, "TooMany": 4 * FAILED_LOGINS}
    if not waits:
        assert [await outcome(logins) for _ in range(FAILED_LOGINS)] == ["NotAuthenticated"] * FAILED_LOGINS, "nothing was answered before"
    assert await outcome(logins) == "TooMany"
