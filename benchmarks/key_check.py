"""Measures the time that the check of an API key adds to each request at the gateway.

    .venv/bin/python -m benchmarks.key_check [--keys 10000] [--requests 200000]

Prints microseconds of CPU time per request, the best of five rounds. The gateway has the maximum number of keys. Each
key has a scope and both limits. Each request has a dozen headers, among them the key. Also prints the cost of a
refusal, and the cost of the SHA-256 alone.
"""

import argparse
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from time import thread_time_ns

from benchmarks.command_line import count

from fairlead.gateway_keys import GatewayKeyFacts
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.tables import PoolKey
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.keys import GatewayKeys
from fairlead_router.protocols.refusals import BadRequest

ROUNDS = 5
CHAT = PoolKey(namespace="default", name="chat")
REQUEST = RoutingRequest(id="r", arrived_at=0.0, prompt_tokens=1000, blocks=(), first_bytes_hash=0)
HEADERS = [(b"x-header-%d" % number, b"value of a header of a client") for number in range(11)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=count, default=10_000)
    parser.add_argument("--requests", type=count, default=200_000)
    asked = parser.parse_args()
    secrets = [f"flk_{number:043d}" for number in range(asked.keys)]
    known = [
        GatewayKeyFacts(
            id=str(number),
            digest=sha256(secret.encode()).hexdigest(),
            pools=("default/chat",),
            models=("llama",),
            expires_at=1e12,
            requests_per_minute=10**9,
            tokens_per_minute=10**12,
        )
        for number, secret in enumerate(secrets)
    ]
    keys = GatewayKeys((), RouterMetrics(), required=True)
    keys.replace(known, 0.0)
    shown = [[*HEADERS, (b"authorization", b"Bearer " + secret.encode())] for secret in secrets]
    wrong = [*HEADERS, (b"authorization", b"Bearer flk_of-nobody")]

    def check(number: int) -> None:
        key = keys.admit(shown[number % len(shown)], number * 1e-3, counted=True)
        assert key is not None
        assert key.facts.opens(CHAT, "llama")
        keys.reserve(key, REQUEST, 1_000_000, number * 1e-3).settle(1000, 100, number * 1e-3)

    def refuse(_: int) -> None:
        with suppress(BadRequest):
            keys.admit(wrong, 0.0, counted=True)

    print(f"{asked.keys} keys, microseconds of CPU per request, best of {ROUNDS} rounds of {asked.requests}")
    for name, work in (
        ("admitted: key, expiry, scope, both limits, tokens reserved and settled", check),
        ("refused: unknown key", refuse),
        ("SHA-256 of a key alone", lambda number: sha256(secrets[0].encode()).digest()),
    ):
        print(f"{name:64} {best(work, asked.requests):6.2f}")


def best(work: Callable[[int], object], requests: int) -> float:
    """Return the microseconds per call in the fastest round."""
    rounds = []
    for number in range(ROUNDS):
        begun = thread_time_ns()
        for request in range(requests):
            work(number * requests + request)
        rounds.append((thread_time_ns() - begun) / requests / 1000)
    return min(rounds)


if __name__ == "__main__":
    main()
