"""Determines the length of an answer."""

from collections.abc import Mapping
from typing import Any

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.kv_transfers import read_handover
from fairlead_simulator.engine_server.request_errors import RequestInvalid
from fairlead_simulator.engine_server.work import Work

OWN_LENGTH_TOKENS = 128
"""Number of tokens after which the simulated model ends an answer if the request sets no limit."""


def work_of(
    document: Mapping[str, Any],
    prompt: bytes,
    limits: tuple[str, ...],
    context_tokens: int,
    default: int | None = None,
    *,
    given_tokens: int | None = None,
) -> Work:
    """Return the work for one prompt, with the length of its answer and the instruction about its KV blocks.

    The length is the value of the first field in `limits` that the request has. If it has none of them, the length is
    `default` or, if that is None, OWN_LENGTH_TOKENS. `given_tokens` is the number of tokens that a continued answer
    already has; None: the answer is a new one.
    """
    continues = given_tokens is not None
    handover = read_handover(document)
    for field in limits:
        limit = fields.count(document, field)
        if limit is not None:
            if limit > context_tokens:
                raise RequestInvalid(
                    f"{field}={limit} cannot be greater than max_model_len={context_tokens}. Please request fewer output tokens."
                    f" (parameter={field}, value={limit})",
                    field,
                )
            return Work(prompt=prompt, max_tokens=limit, handover=handover, continues=continues)
    if default is not None:
        return Work(prompt=prompt, max_tokens=default, handover=handover, continues=continues)
    own = max(1, OWN_LENGTH_TOKENS - (given_tokens or 0))
    return Work(prompt=prompt, max_tokens=own, finish_reason="stop", handover=handover, continues=continues)
