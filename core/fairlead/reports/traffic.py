"""Recorded requests without their text: enough to run them again in a simulation."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.tables import PoolKey

ID_BITS = 53
"""Number of bits of an id: JSON carries numbers of this size exactly."""


def salt_of(uid: str) -> bytes:
    """Return the key with which the ids of a pool with this uid are hashed, so that the ids mean nothing in another
    pool.
    """
    return uid.encode()[:64]


def hashed(salt: bytes, data: bytes) -> int:
    """Return a numeric id of this data, below 2**53."""
    return int.from_bytes(blake2b(data, digest_size=8, key=salt).digest(), "big") >> (64 - ID_BITS)


def session_number(salt: bytes, session: str) -> int:
    """Return the number that identifies a session in the record of its requests."""
    return hashed(salt, b"s" + session.encode())


UNSTORED = "unstored"
"""The mark of fields that the record's own table does not keep."""


def _unstored() -> Any:
    return field(default=None, metadata={UNSTORED: True})


TRAFFIC_BLOCK_TOKENS = 512
"""Number of prompt tokens for which a recorded request has one id, as in Mooncake's traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A request that arrived for a pool, with any outcome: its time, its length, and ids that show which prompts begin
    alike.

    `at` is its arrival. `blocks` has an id for each full block of TRAFFIC_BLOCK_TOKENS of the prompt: equal ids mean
    equal text up to and including that block. Ids and `session` are numbers below 2**53, hashed with the pool's uid, so
    that they mean nothing in another pool; `session` is None if the client named none. `output_tokens` counts the
    generated tokens; None if no engine worked for the request, for example because it was refused. `sample_rate` is the
    share of sessions that are recorded (0-1], each with all its requests.

    The next fields describe how the request was served; they are None if it was not sent to an instance. `instance`
    (and its data-parallel `rank`) is the last instance that received the prompt, `sent_seconds` after the request's
    arrival. From that time on, the first token took `ttft_seconds` and the whole answer `answer_seconds`; both are None
    unless a single engine served the request and its first token was seen. `engine_prompt_tokens` and `cached_tokens`
    are the engine's counts of the prompt's tokens and of the cached tokens among them. If the engine does not report
    cached tokens, the router's estimate is used.

    The other fields make the request a turn of its session's tree (`fairlead.session_trees`). `ended_seconds` is the
    time from its arrival until its end, whatever its `outcome`; `rejection` says why it was refused. `tenant` is the id
    of its key, "" without a key; `tool` is the tool whose result it contains, and `window_number` its client's count of
    compactions. `name` and `parent` are names of sessions, used only for the tree: no session's name is stored with the
    requests themselves. `priority_class` is used only for the tree too, as the class of its task.
    """

    pool: PoolKey
    at: float
    session: int | None
    prompt_tokens: int
    output_tokens: int | None
    blocks: tuple[int, ...]
    sample_rate: float = 1.0
    instance: str | None = None
    rank: int | None = None
    sent_seconds: float | None = None
    ttft_seconds: float | None = None
    answer_seconds: float | None = None
    engine_prompt_tokens: int | None = None
    cached_tokens: int | None = None
    ended_seconds: float | None = None
    outcome: RequestOutcome | None = None
    rejection: RejectionReason | None = None
    decision: str | None = None
    tenant: str | None = None
    task: str | None = None
    tool: str | None = None
    window_number: int | None = None
    name: str | None = _unstored()
    parent: str | None = _unstored()
    priority_class: str | None = _unstored()
