"""Instance states with the legal transitions between them, roles, and the names of instances.

    Pending → Starting → Warming → Serving ⇄ Cordoned → Draining → Gone,  and Lost from any state but Gone.

A drained instance that changes its role goes from Draining to Warming. A drained instance that is kept asleep goes from
Draining to Asleep and, when woken, to Starting. Only in the states Warming and Serving does an instance have ring
anchors and get new work.

An instance's name is a pure function of the pool, the role and a number, so two operators that see the same pods make
the same names. Each instance has an ordinal, one more than the largest ordinal seen before in its pool. The five
characters of its name are a permutation of the ordinals (an affine map modulo 27^5, shifted by a hash of pool and
role). So no two of the first 14 million instances of a pool share a name.
"""

from enum import StrEnum

from xxhash import xxh3_64_intdigest


class InstanceState(StrEnum):
    """The state of an instance in its lifecycle. The values are stored, shown and sent on the wire."""

    PENDING = "Pending"
    STARTING = "Starting"
    WARMING = "Warming"
    SERVING = "Serving"
    CORDONED = "Cordoned"
    DRAINING = "Draining"
    ASLEEP = "Asleep"
    LOST = "Lost"
    GONE = "Gone"


class Role(StrEnum):
    """The part of a request that an instance computes: `both`, or only prefill or decode."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


ACCEPTING = frozenset({InstanceState.WARMING, InstanceState.SERVING})
"""States in which an instance has ring anchors and may be chosen for new requests."""

REACHABLE = ACCEPTING | {InstanceState.CORDONED, InstanceState.DRAINING}
"""States in which requests already dispatched to the instance are expected to finish."""

NOT_COUNTED = frozenset({InstanceState.DRAINING, InstanceState.ASLEEP})
"""States in which an instance does not count towards the desired number, because the instance is being removed or
sleeps until it is needed.
"""

ENGINE_RESTARTED = "EngineRestarted"
"""The reason of a state: the engine served, ended, and was started again in the same pod; its cache is lost."""

MAX_REPLICAS = 4096
"""Maximum number of instances of a role; bounds every number of instances in a pool's spec."""

LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0
"""Bounds of an instance's weight on the hash ring: its share of the keys relative to an instance of weight 1."""


def weight_of(written: str | None) -> float:
    """Return the weight that a person set for an instance; 1 if none was set or the value is not a number within the
    bounds.
    """
    try:
        weight = float(written) if written is not None else 1.0
    except ValueError:
        return 1.0
    return weight if LEAST_WEIGHT <= weight <= MOST_WEIGHT else 1.0


_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of instance names: no vowels, as in the names that Kubernetes generates, so that no words appear."""
_LENGTH = 5
_NAMES: int = len(_LETTERS) ** _LENGTH
_STRIDE = 8_869_087
"""The step between the names of consecutive ordinals. It is about 0.618 of the number of all names, so that
neighbouring names look different. It is not a multiple of 3, so that every name is reached.
"""


def instance_name(pool: str, pool_uid: str, role: Role, ordinal: int) -> str:
    """Return the name of the pool's instance with this ordinal: `<pool>-<role letter><5 characters>`."""
    number = (xxh3_64_intdigest(f"{pool_uid}/{role.value}".encode()) + ordinal * _STRIDE) % _NAMES
    letters = []
    for _ in range(_LENGTH):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return f"{pool}-{role.value[0]}{''.join(letters)}"


_STRIDE_BACK = pow(_STRIDE, -1, _NAMES)


def ordinal_of_name(name: str, pool: str, pool_uid: str, role: Role) -> int | None:
    """Return the smallest ordinal for which `instance_name` returns this name; None if there is none."""
    letters = name.removeprefix(f"{pool}-{role.value[0]}")
    if len(letters) != _LENGTH or not set(letters) <= set(_LETTERS):
        return None
    number = 0
    for letter in reversed(letters):
        number = number * len(_LETTERS) + _LETTERS.index(letter)
    ordinal = (number - xxh3_64_intdigest(f"{pool_uid}/{role.value}".encode())) * _STRIDE_BACK % _NAMES or _NAMES
    return ordinal if instance_name(pool, pool_uid, role, ordinal) == name else None
