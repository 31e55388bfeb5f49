"""Which engines of a pool do not serve one of its names, though the pool declares it: its model or an adapter.

An engine tells by its list of models, which is read now and then, or by a 404 for the name. It gets no request for a
name that it lacks until its list has the name (again). Where the list cannot be read, or says that it serves what it
then refuses, it is asked again after a while, each time a longer one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import orjson

PAUSE_SECONDS = 2.0
"""So long at least is an engine not asked for a name that it has refused more than once though its list has it."""
LONGEST_PAUSE_SECONDS = 300.0
UNLISTED_SECONDS = 30.0
"""For so long it is not asked for a refused name, where its list cannot be read."""

_NOWHERE: Mapping[str, Missing] = MappingProxyType({})


class Missing(NamedTuple):
    """A name that an engine lacks, in Unix seconds: since when, from when on its list is believed to have it, and when
    it is asked again though no list was read.
    """

    since: float
    not_before: float
    expires: float


class ServedNames:
    """The engines of one pool by instance, and the pool's names that they lack. All times are Unix seconds."""

    __slots__ = ("_missing", "_pauses", "doubted")

    def __init__(self) -> None:
        self._missing: dict[str, dict[str, Missing]] = {}
        """By name, then by instance."""
        self._pauses: dict[tuple[str, str], float] = {}
        """By name and instance: the pause after its next refusal, where it refused a name that it lists."""
        self.doubted: set[str] = set()
        """Instances whose list is to be read now."""

    def __bool__(self) -> bool:
        return bool(self._missing)

    def lacking(self, name: str, now: float) -> Collection[str]:
        """The instances that lack the name."""
        found = self._missing.get(name, _NOWHERE)
        for instance in [one for one, missing in found.items() if missing.expires <= now]:
            self.serves(instance, name)
        return found.keys()

    def refused(self, instance: str, name: str, now: float) -> None:
        """It answered that there is no such model."""
        self.doubted.add(instance)
        if instance not in self._missing.setdefault(name, {}):
            pause = self._pauses.get((name, instance), 0.0)
            self._missing[name][instance] = Missing(now, now + pause, now + max(pause, UNLISTED_SECONDS))

    def listed(self, instance: str, listed: Collection[str], declared: Collection[str], asked_at: float) -> None:
        """It told its models, when it was asked at `asked_at`. An engine that lists nothing is believed to serve
        all.
        """
        self.doubted.discard(instance)
        for name in declared if listed else ():
            missing = self._missing.get(name, _NOWHERE).get(instance)
            if name not in listed:
                self._missing.setdefault(name, {})[instance] = Missing(asked_at, asked_at, math.inf)
            elif missing is not None and missing.since <= asked_at and missing.not_before <= asked_at:
                self.serves(instance, name)
                if missing.expires < math.inf:  # it refused what it lists
                    pause = self._pauses.get((name, instance), PAUSE_SECONDS / 2)
                    self._pauses[name, instance] = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def serves(self, instance: str, name: str) -> None:
        """It serves the name, as far as anybody can know."""
        found = self._missing.get(name)
        if found is not None:
            found.pop(instance, None)
            if not found:
                del self._missing[name]

    def unsure(self, instance: str, name: str) -> None:
        """Its refusal may have been the request's fault: only its list counts."""
        missing = self._missing.get(name, _NOWHERE).get(instance)
        if missing is not None and missing.expires < math.inf:
            self.serves(instance, name)

    def keep_only(self, instances: Collection[str], declared: Collection[str]) -> None:
        """Forget all other instances and names."""
        for name, found in tuple(self._missing.items()):
            for instance in tuple(found):
                if instance not in instances or name not in declared:
                    self.serves(instance, name)
        self._pauses = {key: pause for key, pause in self._pauses.items() if key[1] in instances and key[0] in declared}
        self.doubted.intersection_update(instances)


def names_model(body: bytes, name: str) -> bool:
    """Whether an error is about the model of this name: its parameter is `model`, or its message has the name."""
    if name.encode() not in body and b'"model"' not in body:
        return False
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return name.encode() in body
    error = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(error, dict):
        return isinstance(error, str) and name in error
    return error.get("param") == "model" or any(isinstance(word, str) and name in word for word in error.values())
