"""The responses that an instance stores so that clients can retrieve, continue and cancel them. As in vLLM, a response
is only in the memory of the instance that generated it.
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
    """A stored response in its present state. `conversation` is the text with which the next turn of the conversation
    begins. `ticket` and `task` are set only for a response that was created in the background.
    """

    document: dict[str, Any]
    conversation: bytes
    ticket: Turn | None = None
    task: "asyncio.Task[None] | None" = None


class ResponseStore:
    """A store of the latest thousand responses of an instance."""

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
        """Cancel a response that is being generated in the background, and return it. Raises RequestInvalid with status
        404 if the response is unknown, or 400 if it cannot be cancelled.
        """
        stored = self.find(response_id)
        if stored.document["status"] not in _CANCELLABLE:
            raise RequestInvalid("Cannot cancel a synchronous response.", "response_id", kind="invalid_request_error")
        stored.document["status"] = "cancelled"
        if stored.ticket is not None:
            stored.ticket.give_up()
        return stored
