"""Tracks which engines of a pool lack one of its declared names: the model or an adapter.

An engine's list of models shows which names it lacks. The list is read regularly, and at once after a refusal that
seems to say that the engine lacks a name. Such a refusal does not prove it, because a client may have influenced its
text. The list proves it, and so does another engine that serves the same request. An engine gets no request for a name
that it lacks until its list has the name. If the list cannot be read, the engine gets a request for the name again
after a pause. If the list has the name and the engine still refuses it, the pause grows each time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import orjson

PAUSE_SECONDS = 2.0
"""Shortest pause in seconds without requests for a name that the engine lists but has repeatedly refused."""
LONGEST_PAUSE_SECONDS = 300.0
UNLISTED_SECONDS = 30.0
"""Seconds without requests for a refused name, if the engine's list of models cannot be read."""

_NOWHERE: Mapping[str, Missing] = MappingProxyType({})


class Missing(NamedTuple):
    """The times that concern a name that an engine lacks, in Unix seconds.

    `since`: the time at which the engine was found to lack the name. `not_before`: the time from which the engine's
    list is believed if it has the name. `expires`: the time from which the engine may get requests for the name again,
    even if its list could not be read.
    """

    since: float
    not_before: float
    expires: float


class ServedNames:
    """The declared names that the engines of one pool lack, by instance. All times are Unix seconds. A refusal by an
    instance that has left the pool changes nothing.
    """

    __slots__ = ("_pauses", "_present", "doubted", "missing")

    def __init__(self) -> None:
        self._present: Collection[str] | None = None
        """The pool's instances; None before the first `keep_only`."""
        self.missing: dict[str, dict[str, Missing]] = {}
        """By name, and then by instance: the times for a name that the instance lacks. A name that all engines serve is
        left out.
        """
        self._pauses: dict[tuple[str, str], float] = {}
        """By name and instance: the length in seconds of the next pause without requests for a name that the engine
        lists but has refused.
        """
        self.doubted: set[str] = set()
        """The instances whose list of models must be read now, because they may lack a name."""

    def __bool__(self) -> bool:
        return bool(self.missing)

    def lacking(self, name: str, now: float) -> Collection[str]:
        """Return the instances that are assumed to lack the name."""
        found = self.missing.get(name, _NOWHERE)
        for instance in [one for one, missing in found.items() if missing.expires <= now]:
            self.serves(instance, name)
        return found.keys()

    def doubt(self, instance: str) -> None:
        """Record that the instance may lack a name, so that its list of models is read."""
        if self._is_present(instance):
            self.doubted.add(instance)

    def _is_present(self, instance: str) -> bool:
        return self._present is None or instance in self._present

    def contradicted(self, instance: str, name: str, now: float) -> None:
        """Record that the instance refused a request for the name, and that another engine served the request."""
        self.doubt(instance)
        if self._is_present(instance) and instance not in self.missing.setdefault(name, {}):
            pause = self._pauses.get((name, instance), 0.0)
            self.missing[name][instance] = Missing(now, now + pause, now + max(pause, UNLISTED_SECONDS))

    def only_doubted(self, name: str, now: float) -> Collection[str]:
        """Return the instances that are assumed to lack the name, although their own lists have it or could not be
        read.
        """
        self.lacking(name, now)
        return [one for one, missing in self.missing.get(name, _NOWHERE).items() if missing.expires < math.inf]

    def listed(self, instance: str, listed: Collection[str], declared: Collection[str], asked_at: float) -> None:
        """Record the models that the instance listed in response to a request at `asked_at`. An engine with an empty
        list is assumed to serve all names.
        """
        self.doubted.discard(instance)
        for name in declared if listed else ():
            missing = self.missing.get(name, _NOWHERE).get(instance)
            if name not in listed:
                self.missing.setdefault(name, {})[instance] = Missing(asked_at, asked_at, math.inf)
            elif missing is not None and missing.since <= asked_at and missing.not_before <= asked_at:
                self.serves(instance, name)
                if missing.expires < math.inf:  # it refused what it lists
                    pause = self._pauses.get((name, instance), PAUSE_SECONDS / 2)
                    self._pauses[name, instance] = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def serves(self, instance: str, name: str) -> None:
        """Record that the instance is assumed to serve the name again."""
        found = self.missing.get(name)
        if found is not None:
            found.pop(instance, None)
            if not found:
                del self.missing[name]

    def unlisted(self, instance: str) -> None:
        """Record that the instance's list could not be read. The list is not read again because of earlier refusals."""
        self.doubted.discard(instance)

    def keep_only(self, instances: Collection[str], declared: Collection[str], present: Collection[str] | None = None) -> None:
        """Forget all names that are not `declared`, and all instances that are not among `instances`. `present`: all
        instances of the pool, including instances with a new engine; None = `instances`.
        """
        self._present = instances if present is None else present
        for name, found in tuple(self.missing.items()):
            for instance in tuple(found):
                if instance not in instances or name not in declared:
                    self.serves(instance, name)
        self._pauses = {key: pause for key, pause in self._pauses.items() if key[1] in instances and key[0] in declared}
        self.doubted.intersection_update(instances)


def refuses_name(status: int, body: bytes, name: str) -> bool:
    """Return whether an engine's refusal says that the engine has no model or adapter with the `name` in the request.

    vLLM responds with 404, the type `NotFoundError` and the parameter `model`. Older versions of vLLM, and its form of
    Anthropic's protocol, leave the parameter out. llama.cpp responds with 404 or 400, SGLang with 400. If neither the
    parameter nor the code shows the reason, the message must have the name in its first words, because its later words
    may quote the client.
    """
    if status not in (400, 404):
        return False
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    error = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(error, dict):
        return isinstance(error, str) and _says_so(error, name)
    if error.get("code") == "model_not_found":
        return True
    param, message = error.get("param"), error.get("message", error.get("detail"))
    if param:
        return bool(param == "model") and status == 404
    return isinstance(message, str) and _says_so(message, name)


_SUBJECT = re.compile(r"(?:the )?(?:requested )?(?:model|(?:lora )?adapter) [`'\"]?", re.IGNORECASE)
_IS_MISSING = re.compile(r"[`'\"]? (?:does not exist|(?:is |was )?not found)", re.IGNORECASE)
_NOT_LOADED = re.compile(r"(?:the following )?requested lora adapters are not loaded: ([^\n]*)", re.IGNORECASE)
_LISTED = " {}[]()'\"`"


def _says_so(message: str, name: str) -> bool:
    subject = _SUBJECT.match(message)
    if subject is not None:
        return message.startswith(name, subject.end()) and _IS_MISSING.match(message, subject.end() + len(name)) is not None
    named = _NOT_LOADED.match(message)
    return named is not None and name in (one.strip(_LISTED) for one in named[1].split(","))
