"""Finds the session of a request by the names that clients give their conversations, from headers and fields in a fixed
order.

`SOURCES` is the only list of them. The first source with a usable name gives the session. If several conversations turn
out to share that name (`fairlead.routing.knowledge.shared_names`), the names in later sources are used instead, and at
last the beginning of the conversation. docs/gateway.md has the same list for users.

Values are opaque: an address of an instance in a value is never trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson
import xxhash

from fairlead.session_identities import session_identity, tenant_of
from fairlead_router.protocols.lineages import LINEAGE_HEADERS
from fairlead_router.protocols.prompts import Document

POOL_HEADER_PLACE = "the pool's session header"


@dataclass(frozen=True, slots=True)
class Source:
    """A header or field of a request that may name its session.

    `place`: a header name in lower case, or the path of a body field with dots. `within`: a further header, whose value
    distinguishes the agents of one session. `who`: the clients that send it, and the place where this is documented.
    """

    place: str
    who: str
    is_header: bool = False
    within: str = ""
    embedded: bool = False
    """Whether the session's name is only a part of the value. A value without this part names no session."""


def _header(place: str, who: str, within: str = "") -> Source:
    return Source(place, who, is_header=True, within=within)


SOURCES = (
    _header(POOL_HEADER_PLACE, "whoever runs the pool (`spec.routing.session.header`); `x-session-id` is OpenCode's and vLLM's too"),
    _header("x-llm-d-session-id", "llm-d's router"),
    _header("x-dynamo-session-id", "NVIDIA Dynamo"),
    _header("x-session-id", "OpenCode, a session for each sub-agent; vLLM's session affinity"),
    _header("x-claude-code-session-id", "Claude Code; its sub-agents have an id of their own", within="x-claude-code-agent-id"),
    _header("thread-id", "Codex, a thread for each sub-agent"),
    _header("conversation_id", "older versions of Codex"),
    _header("session-id", "Codex, the same for its sub-agents"),
    _header("session_id", "older versions of Codex"),
    _header("x-opencode-session", "OpenCode, to its own service; other agents that speak to that"),
    _header("x-session-affinity", "OpenCode and pi"),
    _header("x-affinity", "Mistral Vibe; pi, to Mistral's models"),
    _header("x-openwebui-chat-id", "Open WebUI, with ENABLE_FORWARD_USER_INFO_HEADERS"),
    _header("x-amp-thread-id", "Amp"),
    _header("x-kilocode-taskid", "Kilo Code"),
    _header("x-client-session-id", "GitHub Copilot's command line"),
    _header("x-grok-conv-id", "clients of xAI's service"),
    _header("x-litellm-session-id", "LiteLLM, and OpenHands"),
    _header("x-conversation-id", "programs of one's own"),
    Source("conversation", "OpenAI's Conversations: an id, or an object with one"),
    Source("previous_response_id", "OpenAI's Responses: the session of the response that the request goes on from"),
    Source("session_id", "vLLM and SGLang"),
    Source("session_params.id", "SGLang's sessions"),
    Source("session_params.session_id", "SGLang's sessions, as some clients write them"),
    Source("vllm_xargs.session_id", "vLLM"),
    Source("litellm_session_id", "LiteLLM"),
    Source("metadata.session_id", "LiteLLM and its clients"),
    Source("client_metadata.thread_id", "Codex, where a proxy takes its headers away"),
    Source("client_metadata.session_id", "Codex, likewise"),
    Source("prompt_cache_key", "OpenAI: requests that begin alike"),
    Source("metadata.user_id", "Claude Code, which writes its session into the user's id", embedded=True),
    Source("safety_identifier", "OpenAI: the end user"),
    Source("user", "OpenAI: the end user, before `safety_identifier` and `prompt_cache_key`"),
    Source("metadata.user_id", "Anthropic: the end user"),
)
"""All sources of a session's name, in the order of their precedence."""

LONGEST_NAME = 200
"""Maximum number of characters of a session name. A longer name is replaced by its hash."""

MOST_NAMES = 4
"""Maximum number of session names of one request that are kept."""

_FIELDS = tuple(source for source in SOURCES if not source.is_header)
_NAMED_HEADERS = tuple((source.place.encode(), source.within.encode()) for source in SOURCES if source.is_header)[1:]
"""All headers of `SOURCES` except the pool's own header, each with its `within` header."""
SESSION_HEADERS = frozenset(name for pair in _NAMED_HEADERS for name in pair if name) | LINEAGE_HEADERS
"""All headers that may name a session or its relations, except the pool's own header."""
_PATHS = tuple((source, source.place.split(".")[0], tuple(source.place.split(".")[1:]) or ("id",)) for source in _FIELDS)
"""Each source in the body, with its top-level field and the fields inside it. If a source has only a top-level field,
the name may also be in that field's `id`.
"""
_TOP_FIELDS = frozenset(top for _, top, _ in _PATHS)

_CREDENTIAL = re.compile(r"(?i)(?:bearer|basic)\s|sk-|eyJ[\w-]+\.|gh[a-z]_|github_pat_|glpat-|hf_|xox[a-z]-|AKIA|AIza")
"""Matches the beginning of a key or token, because some clients put their key into the field for a user's name."""

_CLAUDE_SESSION = re.compile(r"_session_([0-9a-fA-F-]{8,64})$")
"""Matches the session in user ids of older versions of Claude Code: user_<hash>_account_<uuid>_session_<uuid>."""


def session_names(
    headers: Mapping[bytes, bytes] | None, pool_header: bytes, document: Document, previous: str | None = None, tenant: str = ""
) -> tuple[str, ...]:
    """Return the usable names of a request's session in the order of `SOURCES`, without duplicates. Each name is the
    identity of a session of the tenant (`fairlead.session_identities`).

    `headers`: the request's headers that may name the session. `pool_header`: the name of the pool's own header.
    `previous`: the session of the stored response that the request continues, or the id of that response.

    A header or field without a usable name is ignored; the request is not refused because of it.
    """
    if not headers and _TOP_FIELDS.isdisjoint(document):
        return ()
    found: dict[str, None] = {}
    for raw in _raw_names(headers, pool_header, document, previous):
        name = session_name(raw, tenant)
        if name:
            found[name] = None
            if len(found) == MOST_NAMES:
                break
    return tuple(found)


def _raw_names(headers: Mapping[bytes, bytes] | None, pool_header: bytes, document: Document, previous: str | None) -> Iterator[str]:
    if headers:
        if pool_header in headers:
            yield headers[pool_header].decode("latin-1")
        for name, further in _NAMED_HEADERS if len(headers) > 1 or pool_header not in headers else ():
            if name in headers:
                value, agent = headers[name], headers.get(further)
                yield (value + b":" + agent if agent and value.strip() else value).decode("latin-1")
    if _TOP_FIELDS.isdisjoint(document):
        return
    told: str | None = None
    for field, top, within in _PATHS:
        if top not in document:
            continue
        found = previous if top == "previous_response_id" else document[top]
        for part in within:
            if isinstance(found, dict):
                found = found.get(part)
        if not isinstance(found, str):
            continue
        if field.embedded:
            told = found if (session := _embedded_session(found)) else None
            yield session
        elif found is not told:  # or each of a user's sessions would be another user
            yield found


def _embedded_session(user: str) -> str:
    """Return the session in a user id of Claude Code, which is JSON with `session_id` or a text that ends in
    `_session_<uuid>`. Return "" if there is none.
    """
    if user.startswith("{"):
        try:
            facts = orjson.loads(user)
        except ValueError:
            return ""
        session = facts.get("session_id")
        return session if isinstance(session, str) else ""
    found = _CLAUDE_SESSION.search(user)
    return found[1] if found is not None else ""


def session_name(raw: str, tenant: str = "") -> str:
    """Return the identity of the tenant's session with this name, which is safe to store and show; "" for a blank name.

    A name that is too long, not printable, or possibly a secret is replaced by its hash. Without a tenant, a name that
    looks like the identity of a tenant's session is replaced too.
    """
    name = raw.strip()
    if tenant:
        while name.endswith("@" + tenant):  # the session of a stored response
            name = name.removesuffix("@" + tenant)
    elif tenant_of(name):
        name = _hashed(raw)
    if not name:
        return ""
    if len(name) > LONGEST_NAME or not name.isprintable() or _CREDENTIAL.match(name) is not None or name[0] == "{":
        name = _hashed(raw)
    return session_identity(name, tenant)


def _hashed(raw: str) -> str:
    return "hashed-" + xxhash.xxh3_128_hexdigest(raw.encode("utf-8", "surrogatepass"))


def beginning(document: Document, seed: int) -> int:
    """Return a hash of the beginning of the conversation: the user's texts before the first answer, which every turn
    repeats. Return 0 if there are no such texts, or if only the engine has the beginning.

    System texts are left out, because some clients change them from one request to the next. `seed`: a hash of the
    beginning of the prompt.
    """
    if document.get("previous_response_id") or document.get("conversation"):
        return 0
    items = document.get("messages")
    if items is None:
        items = document.get("input")
    texts: list[str] = []
    if isinstance(items, str):
        texts.append(items)
    elif isinstance(items, list):
        for item in items:
            role = item.get("role") if isinstance(item, dict) else None
            if role == "user":
                texts.extend(_texts(item.get("content")))
            elif role not in ("system", "developer"):
                break
    if not texts:
        return 0
    return xxhash.xxh3_64_intdigest("\0".join(texts).encode("utf-8", "surrogatepass"), seed) or 1


def _texts(content: object) -> Iterator[str]:
    """Yield the texts of a message's content, which is a string or a list of parts. Some clients change between these
    forms.
    """
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text
