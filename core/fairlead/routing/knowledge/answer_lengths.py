"""The mean length of each tenant's answers, measured on finished answers."""

WEIGHT = 0.05
"""Weight of one answer in its tenant's mean. While a tenant has few answers, each answer weighs more."""
MOST_TOKENS = 131_072
MOST_TENANTS = 1024
"""Maximum number of remembered tenants. Beyond it, the tenant whose last answer is the oldest is forgotten."""


class AnswerLengths:
    """Mean output tokens of finished answers, per tenant. A tenant without finished answers is assumed to have the mean
    of all tenants.
    """

    def __init__(self) -> None:
        self._means: dict[str, tuple[float, int]] = {}
        """Each tenant's mean and number of answers. The tenant whose last answer is the oldest comes first."""
        self._all = (0.0, 0)

    def observe(self, tenant: str, tokens: int) -> None:
        """Record an answer's length in tokens; a length above `MOST_TOKENS` counts as `MOST_TOKENS`."""
        tokens = min(max(0, tokens), MOST_TOKENS)
        self._all = _moved(self._all, tokens)
        self._means[tenant] = _moved(self._means.pop(tenant, (0.0, 0)), tokens)
        if len(self._means) > MOST_TENANTS:
            del self._means[next(iter(self._means))]

    def expected(self, tenant: str) -> float:
        """Return the expected output tokens of the tenant's next answer; 0 before any tenant has a finished answer."""
        return self._means.get(tenant, self._all)[0]


def _moved(before: tuple[float, int], tokens: int) -> tuple[float, int]:
    mean, count = before
    return mean + max(WEIGHT, 1 / (count + 1)) * (tokens - mean), count + 1
