"""Which router prefers which instance if several decide for themselves and learn of each other seconds late.

All reports are old, so routers that use only them meet at the same instance; and a router without reports cannot know
where others placed a prompt. Hashing settles both without messages. Routers with reports divide the instances; those
without send an unknown prompt to the instance that its hash names, which is the same for all. Where conversations share
their beginning, as by one system prompt, its hash says nothing; then that of the conversation does.
"""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.targets import instance_of

OF_ANOTHER = 0.2
"""Share of the TTFT target that an instance of another router's part counts as waiting."""
AT_HOME = 0.04
"""Share of the TTFT target that a prompt whose beginning nobody is known to hold gains where its hash is at home."""

AT_CONVERSATIONS_HOME = 0.3
"""The same of a turn whose conversation's hash is at home there, while less than half of its prompt is known to be held
anywhere: what other routers' turns left at home saves more than a prompt's beginning.
"""


def home_key(request: RoutingRequest, most_held: int) -> tuple[int, float] | None:
    """The hash key of a request of which `most_held` tokens are known to be held somewhere, and its home's bonus as a
    share of the TTFT target. None if this router knows better than a hash.
    """
    if not most_held:
        return (request.blocks[0], AT_HOME) if request.blocks else None
    if 2 * most_held > request.prompt_tokens:
        return None
    conversation = request.beginning if request.session is None else xxh3_64_intdigest(request.session.encode())
    return (conversation, AT_CONVERSATIONS_HOME) if conversation else None


def part_of(router: str, routers: Sequence[str], instances: Sequence[str]) -> frozenset[str]:
    """The instances that are this router's, by their names without ranks. Every one is exactly one router's, and parts
    differ by one instance at most; with fewer instances than routers, some have none.
    """
    names = sorted(set(routers))
    if router not in names:
        return frozenset()
    place = names.index(router)
    order = sorted(set(map(instance_of, instances)), key=lambda name: (xxh3_64_intdigest(name.encode()), name))
    return frozenset(name for number, name in enumerate(order) if number % len(names) == place)


def seed_of(instance: str) -> int:
    """The seed of an instance's hashes."""
    return xxh3_64_intdigest(instance.encode())


def home_of(key: int, seeds: Sequence[int]) -> int:
    """Index of the instance, by its seed, where a prompt or conversation with this hash is at home (rendezvous hashing:
    one that comes or goes moves no more prompts than it must).
    """
    hashed = key.to_bytes(8, "little")
    scores = [xxh3_64_intdigest(hashed, seed) for seed in seeds]
    return scores.index(max(scores))
