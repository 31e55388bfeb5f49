"""Every way in which a request for a pool's engines can end, and its consequences.

Pools count the ends of requests and charge keys according to this table, which docs/gateway.md prints. A client whose
request was sent to an engine is charged, even if the client does not wait for the response. A client that got nothing
because an engine or the pool failed is not charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Ending(Enum):
    """The way in which a request to a pool ends. A request ends once: its first ending counts."""

    __hash__ = object.__hash__  # members are looked up for each request, and an enum's own way is written in Python

    SERVED = "served"
    REFUSED = "refused"
    REFUSED_AFTER_PREFILL = "refused after its prefill"
    EXHAUSTED = "failed at every try"
    LOST = "failed before anything of its answer"
    BROKEN_OFF = "failed in its answer"
    OUT_OF_TIME = "took too long"
    DECLINED = "declined"
    LEFT_WAITING = "left before it was sent"
    LEFT_UNANSWERED = "left before anything of its answer"
    LEFT_ANSWERED = "left in its answer"


class Charged(Enum):
    """The tokens that the key of a request is charged, as counted by the engine or, if the engine reports no count, by
    the router.
    """

    NOTHING = "nothing"
    PROMPT = "prompt"
    TOKENS = "prompt and output"


class Outcome(Enum):
    """The values of the label `outcome` of `fairlead_router_requests_total`."""

    SERVED = "served"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    REJECTED_BY_ENGINE = "rejected-by-engine"


class Consequences(NamedTuple):
    """The consequences of an ending. `when`, `slo` and `answered` are texts for the documentation."""

    when: str
    charged: Charged
    counted: Outcome
    slo: str
    answered: str


_LATE = "judged as late if the TTFT target had passed, else not counted"

CONSEQUENCES: Mapping[Ending, Consequences] = {
    Ending.SERVED: Consequences(
        "the answer is complete; also if a length limit ended it, or if the client closes after the last event",
        Charged.TOKENS,
        Outcome.SERVED,
        "judged",
        "the answer",
    ),
    Ending.REFUSED: Consequences(
        "the pool refuses it before it is sent to an engine: early rejection, full or too long in a queue, no instance serves, shutdown",
        Charged.NOTHING,
        Outcome.REFUSED,
        "refused",
        "429 or 503",
    ),
    Ending.REFUSED_AFTER_PREFILL: Consequences(
        "the pool refuses it between prefill and decode (`AfterPrefill`)",
        Charged.NOTHING,
        Outcome.REFUSED,
        "refused",
        "429 `rejected-after-prefill`",
    ),
    Ending.EXHAUSTED: Consequences(
        "every engine that it was tried on failed before its answer had content",
        Charged.NOTHING,
        Outcome.REFUSED,
        "refused",
        "502, or the code of the error that the last one reported in its answer",
    ),
    Ending.LOST: Consequences(
        "the client had nothing of the answer, and the engine failed after a stream's status line, or with no time left to try another "
        "engine; or this router failed",
        Charged.NOTHING,
        Outcome.FAILED,
        "failed",
        "an error event or 502, 500 for the router's fault",
    ),
    Ending.BROKEN_OFF: Consequences(
        "its engine failed, or its total time ended, when the client had a part of its answer",
        Charged.TOKENS,
        Outcome.FAILED,
        "failed",
        "the part, then an error event, or a connection that is cut",
    ),
    Ending.OUT_OF_TIME: Consequences(
        "its total time ended while an engine worked on it and the client had nothing of its answer",
        Charged.PROMPT,
        Outcome.FAILED,
        "failed",
        "502",
    ),
    Ending.DECLINED: Consequences(
        "the engine answers 4xx to it",
        Charged.NOTHING,
        Outcome.REJECTED_BY_ENGINE,
        "not counted",
        "the engine's answer",
    ),
    Ending.LEFT_WAITING: Consequences(
        "its client leaves while it is held, queued or about to be sent",
        Charged.NOTHING,
        Outcome.CANCELLED,
        _LATE,
        "",
    ),
    Ending.LEFT_UNANSWERED: Consequences(
        "its client leaves after the request was sent to an engine and before anything of the answer; if the answer is not streamed, "
        "before its end",
        Charged.PROMPT,
        Outcome.CANCELLED,
        _LATE,
        "",
    ),
    Ending.LEFT_ANSWERED: Consequences(
        "its client leaves in the middle of a streamed answer",
        Charged.TOKENS,
        Outcome.CANCELLED,
        "judged by the part",
        "",
    ),
}
