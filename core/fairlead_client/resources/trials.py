"""Test requests: one request of a person to a pool, through a router, and its response."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The request to send: a `prompt` for the pool's model, or for one of its `adapters`. `key` is the gateway key to
    send, which is not stored; `session` names the session of the request.
    """

    prompt: str
    max_tokens: int = 64
    model: str | None = None
    session: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAnswer:
    """The response of a router. `text` is the model's text, `body` the whole body, cut at 64 KiB. `decision` is the id
    of the request's decision, which is kept if the router allows that (`x-fairlead-explain`), `trace` the id of its
    trace.
    """

    pool: str
    status: int
    seconds: float
    headers: list[tuple[str, str]]
    text: str | None
    body: str
    decision: str | None
    instance: str | None
    trace: str
