"""Copies of prefixes that many sessions share: what a scheduler decides from, and what its caller carries out."""

from typing import Protocol

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.values import value


class KeptTurn(Protocol):
    """A session's last turn that was served. Times in Unix seconds."""

    @property
    def request(self) -> RoutingRequest: ...

    @property
    def began(self) -> float:
        """When the session's first turn was served."""

    @property
    def at(self) -> float:
        """When this turn was served."""


@value
class PrefixCopy:
    """Let `target` fetch the KV blocks of `request` from `source` now; nobody waits for it.

    The request is one that was served before and begins with the prefix; all of its blocks are copied, as engines hand
    on whole prompts. `source_tokens` and `target_tokens` are what the two hold of it. The prefix has `prefix_tokens`,
    and this many `sessions` began with it of late. Both predictions are seconds: the expected saving, and the transfer.
    """

    id: str
    request: RoutingRequest
    source: str
    target: str
    began_at: float
    prefix_tokens: int
    source_tokens: int
    target_tokens: int
    sessions: int
    saving_seconds: float
    cost_seconds: float
    longest_seconds: float
    """After this time the copy is given up."""

    @property
    def gain_seconds(self) -> float:
        return self.saving_seconds - self.cost_seconds
