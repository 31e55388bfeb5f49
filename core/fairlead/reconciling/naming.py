"""Names of instances: a pure function of the pool, the role and a number.

Two operators that see the same pods therefore make the same names. Each instance has an ordinal, one more than any
seen before in its pool. The five characters of its name are a permutation of the ordinals (an affine map modulo 27^5,
shifted by a hash of pool and role), so no two instances of a pool share a name until 14 million have been made.
"""

from xxhash import xxh3_64_intdigest

from fairlead.instances import Role

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, as in the names that Kubernetes generates, so that no words appear."""
_LENGTH = 5
_NAMES: int = len(_LETTERS) ** _LENGTH
_STRIDE = 8_869_087
"""About 0.618 of all names, so that neighbours look different; not a multiple of 3, so that every name is reached."""


def instance_name(pool: str, pool_uid: str, role: Role, ordinal: int) -> str:
    """The name of the pool's instance with this ordinal: `<pool>-<role letter><5 characters>`."""
    number = (xxh3_64_intdigest(f"{pool_uid}/{role.value}".encode()) + ordinal * _STRIDE) % _NAMES
    letters = []
    for _ in range(_LENGTH):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return f"{pool}-{role.value[0]}{''.join(letters)}"
