"""Gives engines the priority of a request's class, in the body's field `priority` (`spec.engine.passPriority`).

vLLM takes it for chats and completions: an integer, the lower first, 0 if nothing is said. A class counts the other way
round, as llm-d's objectives do. What a client wrote there is replaced, as its class is what it may have.
"""

from fairlead_router.protocols.body_edits import edited
from fairlead_router.protocols.dialects import Dialect
from fairlead_router.protocols.paths import Endpoint
from fairlead_router.protocols.requests import ParsedRequest

_FIELD = "priority"


def with_class_priority(body: bytes, parsed: ParsedRequest, endpoint: Endpoint, priority: int) -> bytes:
    """Return the body, of which `parsed` was made, with the priority of its class. The body stays as it is if it is
    neither a chat nor a completion, or if the class has priority 0 and the client wrote none.
    """
    document = parsed.document
    takes_it = endpoint.streams and endpoint.dialect is Dialect.OPENAI and ("messages" in document or "prompt" in document)
    if not takes_it or not (priority or _FIELD in document):
        return body
    return edited(body, document, {_FIELD: -priority})
