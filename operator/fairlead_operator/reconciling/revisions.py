"""Keeps a pool's last revisions as ControllerRevision objects, as StatefulSets and DaemonSets do."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from fairlead.errors import InvalidInput
from fairlead.instances import Role
from fairlead.pools import PoolSpec, parse_spec
from fairlead.revisions import revision_data, revision_hash, revision_name, rolled_back
from fairlead_operator.applying.ownership import adopt, is_orphan, is_owned
from fairlead_operator.applying.retrying import ActionRetries, NotOwned
from fairlead_operator.cluster import Cluster, Resource
from fairlead_operator.manifests import revision
from fairlead_operator.observing.pod_engines import by_template
from fairlead_operator.pod_templates import spec_hash
from fairlead_operator.pool_identity import PoolIdentity
from fairlead_operator.reconciling.specs import SpecInForce

ROLLOUT_ANNOTATION = "fairlead.dev/rollout"
"""Annotation of a revision: facts about the rollout to this revision, as written by `rollouts.rollout_note`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """A former revision: its name, and a spec made of the spec in force and the revision's engine and templates."""

    name: str
    spec: PoolSpec


class Revisions:
    """The revisions of one pool. To save calls, this object remembers the last stored revision."""

    def __init__(self, cluster: Cluster, retries: ActionRetries) -> None:
        self._cluster = cluster
        self._retries = retries
        self._kept: tuple[str, int, frozenset[str]] | None = None
        self._read: tuple[str, dict[str, Any]] | None = None
        """Name and data of the revision that was last read; a revision's data never change."""
        self._sources: tuple[object, Mapping[str, Former]] = (None, {})
        """The arguments of the last call of `made_from`, and the result."""
        self._noted: tuple[str, str] | None = None
        """The last revision whose note was written, and the text of this note."""

    async def keep(self, identity: PoolIdentity, in_force: SpecInForce, used: frozenset[str]) -> None:
        """Store engine and templates of the spec in force as the newest revision, and keep at most the number of
        revisions that the spec allows.

        The revisions named in `used`, which instances may still have, are kept in addition.
        """
        if in_force.spec is None or in_force.document is None:
            return
        data = revision_data(in_force.document)
        wanted = (revision_hash(data), in_force.spec.rollout.revision_history, used)
        if self._kept == wanted:
            return
        act = partial(self._keep, identity, data, in_force.spec.rollout.revision_history, used, is_new=in_force.previous is None)
        if await self._retries.attempt(identity, ("revision", wanted), act):
            self._kept = wanted

    async def former(self, identity: PoolIdentity, in_force: SpecInForce, name: str) -> PoolSpec | None:
        """Return the spec in force with engine and templates of the revision of this name.

        None if there is no such revision, or the resulting spec is not valid. Raises ClusterError.
        """
        if in_force.document is None or not name:
            return None
        if self._read is None or self._read[0] != name:
            labelled = await self._cluster.find(Resource.REVISIONS, identity.namespace, identity.selector())
            found = next((item for item in labelled if item["metadata"]["name"] == name), None)
            if found is None or not is_owned(found["metadata"], identity.uid) or not _is_readable(found):
                return None
            self._read = name, found["data"]
        return _as_in(in_force.document, self._read[1])

    async def made_from(self, identity: PoolIdentity, in_force: SpecInForce, templates: frozenset[str]) -> Mapping[str, Former]:
        """Return, by template hash, the newest revision that contains the template. Hashes of templates in the spec in
        force, and hashes without a revision, are left out.

        Raises ClusterError.
        """
        present = by_template(in_force.spec)
        asked = frozenset(templates - present.keys()), in_force.document
        if not asked[0] or in_force.document is None:
            return {}
        if self._sources[0] == asked:
            return self._sources[1]
        found: dict[str, Former] = {}
        for document in await self._newest_first(identity):
            spec = _as_in(in_force.document, document["data"])
            for template in by_template(spec).keys() & asked[0]:
                found.setdefault(template, Former(name=document["metadata"]["name"], spec=by_template(spec)[template]))
        if found.keys() == asked[0]:
            self._sources = asked, found
        return found

    async def note(self, identity: PoolIdentity, in_force: SpecInForce, note: str) -> None:
        """Write this note about the rollout into the revision of the spec in force."""
        name = revision_in_force(identity, in_force)
        if not name or self._noted == (name, note):
            return
        body = {"metadata": {"annotations": {ROLLOUT_ANNOTATION: note}}}
        act = partial(self._patch, identity, name, body)
        if await self._retries.attempt(identity, ("rollout", name), act):
            self._noted = name, note

    async def note_of_newest(self, identity: PoolIdentity, in_force: SpecInForce) -> str:
        """Return the note about the rollout in the revision of the spec in force. Empty without a note, or if another
        revision is newer, because the note then is about an earlier rollout. Raises ClusterError.
        """
        metadata: Mapping[str, Any] = next((item["metadata"] for item in await self._newest_first(identity)), {})
        is_ours = metadata.get("name") == revision_in_force(identity, in_force)
        return str((metadata.get("annotations") or {}).get(ROLLOUT_ANNOTATION, "")) if is_ours else ""

    async def _patch(self, identity: PoolIdentity, name: str, body: dict[str, Any]) -> None:
        await self._cluster.patch(Resource.REVISIONS, identity.namespace, name, body)

    async def _newest_first(self, identity: PoolIdentity) -> list[dict[str, Any]]:
        """Return the pool's revisions, including revisions left by an earlier pool of the same name."""
        labelled = await self._cluster.find(Resource.REVISIONS, identity.namespace, identity.selector())
        ours = [item for item in labelled if is_owned(item["metadata"], identity.uid) or is_orphan(item["metadata"], identity)]
        return sorted(filter(_is_readable, ours), key=lambda item: -int(item.get("revision") or 0))

    async def _keep(self, identity: PoolIdentity, data: dict[str, Any], limit: int, used: frozenset[str], *, is_new: bool) -> None:
        if is_new and await self._cluster.create(Resource.REVISIONS, identity.namespace, revision(identity, data, 1)):
            return
        labelled = await self._cluster.find(Resource.REVISIONS, identity.namespace, identity.selector())
        for document in labelled:
            if is_orphan(document["metadata"], identity):
                await adopt(self._cluster, identity, Resource.REVISIONS, document)
        ours = [item for item in labelled if is_owned(item["metadata"], identity.uid) or is_orphan(item["metadata"], identity)]
        ours.sort(key=lambda item: int(item.get("revision") or 0))
        await self._make_newest(identity, data, ours)
        name = revision(identity, data, 0)["metadata"]["name"]
        others = [item["metadata"]["name"] for item in ours if item["metadata"]["name"] not in {name, *used}]
        for old in others[: max(0, len(others) + 1 - limit)]:
            await self._cluster.delete(Resource.REVISIONS, identity.namespace, old)

    async def _make_newest(self, identity: PoolIdentity, data: dict[str, Any], ours: list[dict[str, Any]]) -> None:
        """Create the revision of the spec in force. If this revision exists because the pool was rolled back, give it
        the newest number.
        """
        highest = int(ours[-1].get("revision") or 0) if ours else 0
        body = revision(identity, data, highest + 1)
        name = body["metadata"]["name"]
        if ours and ours[-1]["metadata"]["name"] == name:
            return
        if any(item["metadata"]["name"] == name for item in ours):
            await self._cluster.patch(Resource.REVISIONS, identity.namespace, name, {"revision": highest + 1})
        elif not await self._cluster.create(Resource.REVISIONS, identity.namespace, body):
            raise NotOwned(f"ControllerRevision {identity.namespace}/{name} exists and is not this pool's; delete it")


class _Role(msgspec.Struct):
    name: str
    template: dict[str, Any] | None = None


class _Data(msgspec.Struct):
    """The form that a revision's data must have to be readable."""

    engine: dict[str, Any] | None = None
    roles: tuple[_Role, ...] | None = None


def _is_readable(revision: Mapping[str, Any]) -> bool:
    """Return whether a revision's data can be read. Anybody may create a ControllerRevision with Fairlead's labels and
    other data.
    """
    try:
        msgspec.convert(revision.get("data"), _Data)
    except msgspec.ValidationError:
        return False
    return True


def _as_in(document: Mapping[str, Any], data: Mapping[str, Any]) -> PoolSpec | None:
    """Return the spec of a document with engine and templates of a revision; None if the result is not valid."""
    try:
        return parse_spec(rolled_back(document, data))
    except InvalidInput:
        return None


def former_hashes(former: PoolSpec | None) -> Mapping[Role, str]:
    """Return the hash of each role's template in a former spec."""
    return {role.name: spec_hash(former, role.name) for role in former.roles} if former is not None else {}


def revision_in_force(identity: PoolIdentity, in_force: SpecInForce) -> str:
    """Return the name of the revision of the spec in force; empty if there is none."""
    return revision_name(identity.name, revision_data(in_force.document)) if in_force.document is not None else ""
