"""The instances that are considered for one request, as vectors in one common order, for the scorers and filters of a
profile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairlead.routing.contracts.loads import InstanceLoad
from fairlead.routing.contracts.policies import PoolView
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.contracts.vectors import FloatVector, IntVector

BoolVector = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """The instances that a policy considers. Each vector has one entry per instance of `loads` and must not be
    changed.
    """

    request: RoutingRequest
    view: PoolView
    now: float
    """The time of the decision (Unix seconds)."""
    loads: Sequence[InstanceLoad]
    places: IntVector
    """The index of each instance in `view.candidates()`."""
    hits: IntVector
    """Cached prompt tokens of the request on each instance."""
    pending: IntVector
    """Uncached prompt tokens of requests that have no first token yet, per instance."""
    queued: IntVector
    """Requests that wait for each instance: requests queued in this router, and sent requests that wait in the engine
    until another prefill ends.
    """
    requests: IntVector
    """Number of requests that wait for each instance or run on it."""
    kv_usage: FloatVector
    """Used share of each instance's KV cache, 0 to 1."""

    @staticmethod
    def of(request: RoutingRequest, view: PoolView, now: float) -> "Considered":
        """Return the `Considered` of all candidates of the view."""
        vectors = view.vectors()
        return Considered(
            request=request,
            view=view,
            now=now,
            loads=vectors.loads,
            places=np.arange(len(vectors.loads)),
            hits=view.hit_vector(request),
            pending=vectors.pending,
            queued=vectors.queued,
            requests=vectors.requests,
            kv_usage=vectors.kv_usage,
        )

    def __len__(self) -> int:
        return len(self.loads)

    def only(self, kept: BoolVector) -> "Considered":
        """Return the `Considered` of the instances for which `kept` is true."""
        return Considered(
            request=self.request,
            view=self.view,
            now=self.now,
            loads=[load for load, stays in zip(self.loads, kept.tolist(), strict=True) if stays],
            places=self.places[kept],
            hits=self.hits[kept],
            pending=self.pending[kept],
            queued=self.queued[kept],
            requests=self.requests[kept],
            kv_usage=self.kv_usage[kept],
        )

    @property
    def block_tokens(self) -> int:
        """Tokens per block; hits are counted in blocks of this size."""
        return self.view.block_tokens(self.request)

    def prompt_blocks(self, most_tokens: int = 0) -> int:
        """Number of full blocks of the prompt, or of its first `most_tokens` tokens (0 = the whole prompt)."""
        tokens = self.request.prompt_tokens
        return (min(tokens, most_tokens) if most_tokens else tokens) // self.block_tokens

    def matched_blocks(self) -> IntVector:
        """Return the number of leading blocks of the prompt that each instance holds. The prompt's last block counts as
        held, although its last token is always computed.
        """
        block = self.block_tokens
        return (self.hits + block - 1) // block
