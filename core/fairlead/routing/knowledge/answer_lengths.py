"""How long the answers of each tenant are, from those that finished."""

WEIGHT = 0.05
"""Weight of one answer in its tenant's mean; the first ones weigh more."""
MOST_TOKENS = 131_072
MOST_TENANTS = 1024
"""Tenants that are remembered; beyond, the one whose last answer is longest ago is forgotten."""


class AnswerLengths:
    """Mean output tokens of finished answers. A tenant without any is assumed to be like all others together."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[float, int]] = {}
        """Tenant → mean and number, the one whose last answer is longest ago first."""
        self._all = (0.0, 0)

    def observe(self, tenant: str, tokens: int) -> None:
        """Record an answer's length in tokens; impossible lengths count as `MOST_TOKENS`."""
        tokens = min(max(0, tokens), MOST_TOKENS)
        self._all = _moved(self._all, tokens)
        self._means[tenant] = _moved(self._means.pop(tenant, (0.0, 0)), tokens)
        if len(self._means) > MOST_TENANTS:
            del self._means[next(iter(self._means))]

    def expected(self, tenant: str) -> float:
        """Output tokens of the tenant's next answer; 0 before any answer was seen."""
        return self._means.get(tenant, self._all)[0]


def _moved(before: tuple[float, int], tokens: int) -> tuple[float, int]:
    mean, count = before
    return mean + max(WEIGHT, 1 / (count + 1)) * (tokens - mean), count + 1
