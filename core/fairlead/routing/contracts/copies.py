"""Copies of prefixes that many sessions share: the input of a scheduler's decision to copy, and the order that its
caller carries out.
"""

from typing import Protocol

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.values import value


class KeptTurn(Protocol):
    """The last served turn of a session. Times in Unix seconds."""

    @property
    def request(self) -> RoutingRequest: ...

    @property
    def began(self) -> float:
        """Time at which the session's first turn was served."""

    @property
    def at(self) -> float:
        """Time at which this turn was served."""


@value
class PrefixCopy:
    """An order to let `target` fetch the KV blocks of `request` from `source` now, before any client's request needs
    them.

    `request` was served before and begins with the shared prefix. All of its blocks are copied, because engines
    transfer only whole prompts. `source_tokens` and `target_tokens` are the numbers of its tokens that the source and
    the target hold. The prefix has `prefix_tokens` tokens, and `sessions` sessions began with it recently. The saving
    and the cost are predicted seconds; the cost is the duration of the transfer.
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
    """Seconds after which the copy is abandoned."""

    @property
    def gain_seconds(self) -> float:
        return self.saving_seconds - self.cost_seconds
