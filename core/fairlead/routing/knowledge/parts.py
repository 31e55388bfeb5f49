"""The instances that each router prefers. This matters if several routers decide alone and receive each other's load
reports only seconds later.

Because all reports are old, routers that chose only by reports would choose the same instance at the same time. And a
router without reports does not know where another router placed a prompt. Hashing solves both problems without
messages. Routers with reports divide the instances among themselves; the instances of a router are its *part*. Routers
without reports send an unknown prompt to the instance that the prompt's hash selects, which is the same for all
routers. If an instance holds only the prompt's beginning, such as a system prompt that many conversations share, the
hash of the conversation selects the instance.
"""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.targets import instance_of

OF_ANOTHER = 0.2
"""Extra waiting time charged to an instance in another router's part, as a share of the TTFT target."""
AT_HOME = 0.04
"""Bonus for the instance that the prompt's hash selects, as a share of the TTFT target. It applies if no instance is
known to hold the prompt's beginning.
"""

AT_CONVERSATIONS_HOME = 0.3
"""Bonus for the instance that the conversation's hash selects, as a share of the TTFT target. It applies if some
instance is known to hold the prompt's beginning, but none holds more than half of the prompt. It is larger than
`AT_HOME`: other routers may have sent earlier turns of the conversation to that instance, which saves more than a
prompt's beginning.
"""


def home_key(request: RoutingRequest, most_held: int) -> tuple[int, float] | None:
    """Return the hash key of a request, and the bonus of the instance that the key selects, as a share of the TTFT
    target. None if no key is known, or if an instance is known to hold more than half of the prompt. `most_held` is the
    largest number of the prompt's tokens that an instance is known to hold.
    """
    if not most_held:
        return (request.blocks[0], AT_HOME) if request.blocks else None
    if 2 * most_held > request.prompt_tokens:
        return None
    conversation = request.beginning if request.session is None else xxh3_64_intdigest(request.session.encode())
    return (conversation, AT_CONVERSATIONS_HOME) if conversation else None


def part_of(router: str, routers: Sequence[str], instances: Sequence[str]) -> frozenset[str]:
    """Return the instances in this router's part, by their names without ranks. Every instance is in exactly one part,
    and the sizes of parts differ by at most one. With fewer instances than routers, some parts are empty.
    """
    names = sorted(set(routers))
    if router not in names:
        return frozenset()
    place = names.index(router)
    order = sorted(set(map(instance_of, instances)), key=lambda name: (xxh3_64_intdigest(name.encode()), name))
    return frozenset(name for number, name in enumerate(order) if number % len(names) == place)


def seed_of(instance: str) -> int:
    """Return the instance's number for rendezvous hashing."""
    return xxh3_64_intdigest(instance.encode())


def home_of(key: int, seeds: Sequence[int]) -> int:
    """Return the index of the instance that the hash `key` of a prompt or conversation selects among the instances with
    these seeds. The method is rendezvous hashing: adding or removing an instance moves as few prompts as possible.
    """
    hashed = key.to_bytes(8, "little")
    scores = [xxh3_64_intdigest(hashed, seed) for seed in seeds]
    return scores.index(max(scores))
