"""Adds running engines to a pool, or removes them.

Plans represent the engines as a mapping from an engine's name to the other fields of its entry in the file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from fairlead.addresses import joined
from fairlead.errors import InvalidInput
from fairlead.instances import ACCEPTING, InstanceState
from fairlead.routing.contracts.catalogues import PolicyCatalogue, RingUse
from fairlead.routing.knowledge.ring_changes import expected_sessions, moved_shares
from fairlead.routing.knowledge.rings import key_shares
from fairlead_api.plans.changes import Asked, Change, Kind
from fairlead_api.plans.evidence import InstanceUse, PoolUse
from fairlead_api.plans.objects import Target
from fairlead_api.plans.questions import CannotSimulate, Known, Present, Question, Tried
from fairlead_client.resources.plan_kinds import EngineAction, PlanKind
from fairlead_client.resources.plans import PlanEffect

ENGINES = "engines"
"""The name of the section that lists engines, in a file and in a plan's change."""
_HOST = re.compile(r"[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_.])?")
_FIELDS = {EngineAction.ADD: ("action", "url", "name", "weight"), EngineAction.REMOVE: ("action", "name")}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesQuestion:
    """Finds the effect of adding and removing engines. `engines` has an entry for an engine to add, and None for an
    engine to remove.
    """

    change: Mapping[str, Any]

    async def effect(self, known: Known) -> PlanEffect:
        return engines_effect(known.use, self.change, known.policies)

    def tried(self, _present: Present) -> Tried:
        raise CannotSimulate("the simulator does not know the engine that is added or removed")


async def _change(asked: Asked) -> Change:
    await asked.its_pool()
    target = Target.of_engines(asked.pool)
    found = await asked.cluster.read(target)
    return Change(target=target, found=found, patch=engines_patch(asked.request.fields or {}, found.spec[ENGINES]))


def _questions(change: Change, _policies: PolicyCatalogue) -> Sequence[Question]:
    return [EnginesQuestion(change=change.patch[ENGINES])]


def base_url(url: str) -> str:
    """Return the engine's address as `http://host:port`. Raises ValueError, whose text describes the expected form."""
    remedy = "write http://HOST:PORT, such as http://10.0.0.7:8000"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(remedy) from None
    if parts.scheme == "https":
        raise ValueError(f"{remedy}; TLS to engines is not supported, put them on a network of their own")
    if parts.scheme != "http" or not host or parts.username is not None or parts.query or parts.fragment:
        raise ValueError(remedy)
    if port == 0:
        raise ValueError(f"{remedy}; no engine can listen on port 0")
    if not _is_host(host):
        raise ValueError(f"{remedy}; a host is a name in letters, digits, dots, hyphens and underscores, or an IP address")
    if parts.path.rstrip("/") not in {"", "/v1"}:
        raise ValueError(f"{remedy}, without a path: the engine's API must begin at /v1")
    return f"http://{joined(host, port or 80)}"


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST.fullmatch(host) is not None
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def engine_name(url: str) -> str:
    """Return the name of an engine that was given no name, made from its base URL: `http://10.0.0.7:8000` →
    `10.0.0.7-8000`.
    """
    return re.sub(r"[^a-z0-9.]+", "-", url.removeprefix("http://").lower()).strip("-")


def engines_patch(fields: Mapping[str, Any], engines: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch of the engine list that adds or removes an engine. Raises InvalidInput for an impossible
    change.
    """
    actions = [action.value for action in EngineAction]
    if fields.get("action") not in actions:
        raise InvalidInput("fields.action", fields.get("action"), f"write {' or '.join(actions)}")
    action = EngineAction(fields["action"])
    for name, value in fields.items():
        if name not in _FIELDS[action]:
            raise InvalidInput(f"fields.{name}", value, f"remove it; to {action} an engine takes {', '.join(_FIELDS[action])}")
    return {ENGINES: _added(fields, engines) if action is EngineAction.ADD else _removed(fields, engines)}


def weighed_engine(name: str, weight: float | None) -> dict[str, Any]:
    """Return the merge patch of the engine list that sets the engine's weight; None removes the explicit weight."""
    return {ENGINES: {name: {"weight": weight}}}


def _added(fields: Mapping[str, Any], engines: Mapping[str, Any]) -> dict[str, Any]:
    try:
        url = base_url(str(fields.get("url") or ""))
    except ValueError as problem:
        raise InvalidInput("fields.url", fields.get("url"), str(problem)) from None
    name = fields.get("name") or engine_name(url)
    if not isinstance(name, str) or name in engines:
        raise InvalidInput("fields.name", name, "write a name that no other engine of the pool has")
    weight = fields.get("weight")
    return {name: {"url": url} if weight is None else {"url": url, "weight": weight}}


def _removed(fields: Mapping[str, Any], engines: Mapping[str, Any]) -> dict[str, Any]:
    name = fields.get("name")
    if not isinstance(name, str) or name not in engines:
        raise InvalidInput("fields.name", name, f"the pool's engines are {', '.join(sorted(engines))}")
    if len(engines) == 1:
        raise InvalidInput("fields.name", name, "it is the pool's last engine; add another first, or drain it")
    return {name: None}


def engines_effect(pool: PoolUse, change: Mapping[str, Any], policies: PolicyCatalogue) -> PlanEffect:
    """Return the effect of adding engines (engines with an entry) and removing engines (engines with None): the keys,
    sessions and caches that move.
    """
    added = [name for name, entry in change.items() if entry is not None]
    victims = [use for use in pool.instances if change.get(use.id, "") is None]
    left = [use for use in pool.instances if use not in victims]
    new = [InstanceUse(id=name, state=InstanceState.SERVING, bound_sessions=0, cache_tokens=0, in_flight=0) for name in added]
    anchors = pool.facts.anchors_per_instance
    before = [use.entry(anchors) for use in pool.instances]
    moves = moved_shares(before, [use.entry(anchors) for use in (*left, *new)])
    leaving = sum(use.bound_sessions for use in victims)
    following = cached = 0
    if added and policies.entry(pool.facts.routing.policy).ring is RingUse.EVERY_REQUEST:
        shares = key_shares(before)
        following = round(expected_sessions(moves, shares, {use.id: use.bound_sessions for use in left}))
        cached = round(expected_sessions(moves, shares, {use.id: use.cache_tokens for use in left}))
    homeless = bool(victims) and not new and not any(use.state in ACCEPTING for use in left)
    effect = PlanEffect(
        instances_added=len(added),
        instances_removed=len(change) - len(added),
        victims=[use.id for use in victims],
        key_share_moved=sum(moves.values()),
        sessions_moved=following + (0 if homeless else leaving),
        sessions_lost=leaving if homeless else 0,
        cache_tokens_lost=cached + sum(use.cache_tokens for use in victims),
        requests_in_flight=sum(use.in_flight for use in victims),
        heavy=homeless or pool.is_heavy(following + leaving),
    )
    notes = [f"{name} gets requests once it answers and serves the pool's model." for name in added]
    notes += [f"{use.id} gets no new requests, is emptied and leaves the pool; it goes on running." for use in victims]
    alone = ["No other engine takes requests: every new request will be refused."] if homeless else []
    return replace(effect, notes=notes, warnings=alone)


KIND = Kind(name=PlanKind.ENGINES, change=_change, questions=_questions)
