"""The responses that an instance stores, so that they can be retrieved, continued and cancelled. As in vLLM, they are
only in the memory of the instance that made them.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from fairlead_simulator.engine_server.pacing import Turn
from fairlead_simulator.engine_server.request_errors import RequestInvalid

_MOST_KEPT = 1000
_CANCELLABLE = ("queued", "in_progress")


@dataclass(slots=True, kw_only=True)
class StoredResponse:
    """A stored response in its present state. `conversation` is the text with which a next turn begins; `ticket` and
    `task` are set while the response is still generated in the background.
    """

    document: dict[str, Any]
    conversation: bytes
    ticket: Turn | None = None
    task: "asyncio.Task[None] | None" = None


class ResponseStore:
    """A store of an instance's latest thousand responses."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()

    def keep(self, stored: StoredResponse) -> None:
        self._kept[stored.document["id"]] = stored
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    def find(self, response_id: str) -> StoredResponse:
        """Return the stored response with this id. Raises RequestInvalid (404) if it is not stored."""
        stored = self._kept.get(response_id)
        if stored is None:
            raise RequestInvalid(f"Response with id '{response_id}' not found.", "response_id", 404, "invalid_request_error")
        return stored

    def cancel(self, response_id: str) -> StoredResponse:
        """Cancel a response that is generated in the background, and return it. Raises RequestInvalid: 404 if it is
        unknown, or 400 if there is nothing to cancel.
        """
        stored = self.find(response_id)
        if stored.document["status"] not in _CANCELLABLE:
            raise RequestInvalid("Cannot cancel a synchronous response.", "response_id", kind="invalid_request_error")
        stored.document["status"] = "cancelled"
        if stored.ticket is not None:
            stored.ticket.give_up()
        return stored
