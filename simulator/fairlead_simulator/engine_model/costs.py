"""The costs of an engine's steps, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillCost:
    """The cost in seconds of a prefill of x new tokens, after which the sequence has s tokens: `fixed + per_token*x +
    per_context*s + per_pair*x*s`. The cost is linear in x if `per_context` and `per_pair` are 0.
    """

    fixed: float = 0.0
    per_token: float
    per_context: float = 0.0
    per_pair: float = 0.0

    def at_speed(self, speed: float) -> "PrefillCost":
        """Return the cost on hardware that is `speed` times as fast."""
        return PrefillCost(
            fixed=self.fixed / speed,
            per_token=self.per_token / speed,
            per_context=self.per_context / speed,
            per_pair=self.per_pair / speed,
        )

    def seconds(self, new_tokens: int, sequence_tokens: int) -> float:
        """Return the seconds of a step that computes only this one prompt."""
        return self.fixed + self.variable(new_tokens, sequence_tokens)

    def variable(self, new_tokens: int, sequence_tokens: int) -> float:
        """Return the seconds of a prefill without the fixed cost. A step with several prompts has the fixed cost only
        once.
        """
        return self.per_token * new_tokens + (self.per_context + self.per_pair * new_tokens) * sequence_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCost:
    """The cost in seconds of a decode step: `fixed + per_context_token * (context tokens of the batch) + per_sequence *
    (sequences in the batch)`.
    """

    fixed: float
    per_context_token: float
    per_sequence: float

    def at_speed(self, speed: float) -> "DecodeCost":
        """Return the cost on hardware that is `speed` times as fast."""
        return DecodeCost(
            fixed=self.fixed / speed, per_context_token=self.per_context_token / speed, per_sequence=self.per_sequence / speed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCost:
    """The cost of moving KV blocks between instances: the blocks' bytes divided by the link's bandwidth, plus a
    latency. All transfers from the same source share that source's bandwidth equally.
    """

    bytes_per_token: int
    bytes_per_second: float
    latency_seconds: float = 0.0

    def seconds(self, tokens: int, active: int) -> float:
        """Return the seconds to move the KV blocks of this many tokens. `active` is the number of other transfers at
        the source when this one begins; transfers that begin later do not slow it down.
        """
        return tokens * self.bytes_per_token * (1 + active) / self.bytes_per_second + self.latency_seconds
