"""Picks instances for a proxy's requests that bypass the scheduler. They go to the least loaded instance, or to the
instance that made a stored response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from fairlead.tables import Outlook
from fairlead_router.picking.accounts import DirectAccount
from fairlead_router.picking.finding import members
from fairlead_router.picking.messages import HeaderList
from fairlead_router.picking.picked_request import PickedRequest
from fairlead_router.pools.charges import Charge
from fairlead_router.pools.keys import GatewayKey, GatewayKeys
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Opens
from fairlead_router.protocols import paths
from fairlead_router.protocols.refusals import BadRequest, ErrorAnswer, closed, nobody_serves
from fairlead_router.relaying.calls import Calls
from fairlead_router.relaying.held_responses import HeldResponses
from fairlead_router.relaying.response_holders import ResponseHolders
from fairlead_router.settings import RouterSettings

Work = Callable[[], Coroutine[None, None, None]]

_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_ENDS_A_LINE = re.compile(rb"[\r\n\0]")


class DirectPicks:
    """Picks instances for requests that bypass the scheduler. `start` runs work for a request as a task, and refuses
    the request if this work fails.
    """

    def __init__(
        self,
        settings: RouterSettings,
        keys: GatewayKeys,
        calls: Calls,
        holders: ResponseHolders,
        held: HeldResponses,
        now: Callable[[], float],
        start: Callable[[PickedRequest, Work], None],
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._calls = calls
        self._holders = holders
        self._held = held
        self._now = now
        self._start = start

    def pick_any(self, asked: PickedRequest, pool: Pool, subset: tuple[str, ...] | None, name: str = "") -> None:
        """Pick the instance with the fewest requests in flight, among the instances that serve the model or adapter
        `name`. If the pool has no such instance, wait for one if the pool expects one and `subset` is None; refuse the
        request otherwise.
        """
        among = None if subset is None else members(pool, subset)
        instances = pool.choice.by_load((), self._now(), name, among)
        if instances:
            self._send(asked, pool, instances)
        elif subset is not None or pool.table.outlook is not Outlook.COMING:
            self._refuse(asked, pool)
        else:
            self._start(asked, partial(self._await_instance, asked, pool, name))

    async def _await_instance(self, asked: PickedRequest, pool: Pool, name: str) -> None:
        await pool.account.wait_for_instance(len(asked.body), self._now())
        instances = pool.choice.by_load((), self._now(), name)
        if instances:
            self._send(asked, pool, instances)
        else:
            self._refuse(asked, pool)

    def _refuse(self, asked: PickedRequest, pool: Pool) -> None:
        pool.counters.direct["refused"] += 1
        asked.refuse(self._nobody(asked, pool))

    def _nobody(self, asked: PickedRequest, pool: Pool) -> ErrorAnswer:
        if pool.table.outlook is Outlook.CLOSED:
            return closed(pool.table, self._now(), pool.header, asked.dialect)
        return nobody_serves(f"no instance of pool {pool.key} that may serve it accepts requests", pool.header, asked.dialect)

    def _send(
        self, asked: PickedRequest, pool: Pool, instances: Sequence[str], charge: Charge | None = None, *, judges: bool = True
    ) -> None:
        """Send the request to the first of the instances. As many further instances as the settings allow are
        alternatives. `judges`: whether a response counts as failed if its body is an error.
        """
        told = instances[: 1 + self._settings.picker_fallbacks]
        asked.account = DirectAccount(pool, told, self._now(), charge, judges=judges)
        asked.send(pool, [pool.addresses[instance] for instance in told], self._calls.next_id())

    async def pick_holder(
        self, asked: PickedRequest, target: bytes, subset: tuple[str, ...] | None, key: GatewayKey | None, opens: Opens
    ) -> None:
        """Pick the instance that made the stored response, because no other instance can serve the request. If the
        router does not know that instance, it asks all instances for the response. Raises BadRequest 404 if no instance
        has it.
        """
        path = target.partition(b"?")[0].removesuffix(b"/")
        response = paths.response_id(path[path.rindex(b"/v1/responses/") :])
        found = await self._holders.find(response, opens, of_http1(asked.headers))  # engines speak that
        if found is None:
            raise BadRequest(404, "response_not_found", f"response {response[:100]!r} is held by no instance")
        pool, instance = found
        if key is not None:
            self._keys.sent_to_pool(key, self._now())
        if subset is None or instance in members(pool, subset):
            self._send(asked, pool, [instance], charge=self._held.charge(response), judges=False)
        else:
            self._refuse(asked, pool)


def of_http1(headers: HeaderList) -> HeaderList:
    """Return only the headers that are valid in an HTTP/1.1 request, because peers at the picker's port may send any
    bytes.
    """
    return [(name, value) for name, value in headers if _NAME.fullmatch(name) and not _ENDS_A_LINE.search(value)]
