"""Carries out the decisions of controllers. Their writes take the same path as the writes of clients."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from processkube.kubernetes_api.collecting.conditions import record_event
from processkube.kubernetes_api.collecting.deleting import DeleteOptions, delete
from processkube.kubernetes_api.kinds.kinds import ResourceKind
from processkube.kubernetes_api.objects.errors import ApiError, NotFound
from processkube.kubernetes_api.objects.objects import Object, copy_of
from processkube.kubernetes_api.workloads.plans import Change, ChangeStatus, Create, Delete, Tell, Write
from processkube.kubernetes_api.writing.resources import Resources, WriteOptions

_OPTIONS = WriteOptions(field_manager="kube-controller-manager")


class Writer:
    """The writes of one controller. `component` is the controller's name in events, such as `deployment-controller`."""

    def __init__(self, resources: Resources, component: str) -> None:
        self._resources = resources
        self._component = component

    def carry_out(self, writes: Iterable[Write]) -> None:
        """Make the writes in order. Raises ApiError at the first write that is refused."""
        for write in writes:
            self.write(write)

    def write(self, write: Write) -> Object:
        """Make one write, and return the resulting object. For an Event, return the object that the Event is about."""
        match write:
            case Tell(about=about):
                record_event(
                    self._resources,
                    about,
                    event_type=write.event_type,
                    reason=write.reason,
                    message=write.message,
                    component=self._component,
                )
                return about
            case Create(item=item):
                kind, namespace, _ = self._place(item)
                return self._resources.create(kind, namespace, copy_of(item), _OPTIONS).object
            case Change(item=item):
                return self._put(item, "")
            case ChangeStatus(item=item):
                return self._put(item, "status")
            case Delete(item=item, propagation=propagation):
                options = DeleteOptions(uid=item["metadata"]["uid"], propagation=propagation)
                with suppress(NotFound):
                    delete(self._resources, *self._place(item), options)
                return item

    def write_for(self, owner: Object, writes: Iterable[Create | Delete]) -> str:
        """Create and delete objects for their owner, and record an event for each. Stop at the first refused write, and
        return the reason of the refusal; "" if no write was refused.

        If a write is refused because the namespace is being deleted, return "", too.
        """
        for write in writes:
            doing, done = ("Create", "Created") if isinstance(write, Create) else ("Delete", "Deleted")
            kind = write.item["kind"].lower()
            try:
                item = self.write(write)
            except ApiError as error:
                if _is_in_ending_namespace(error):
                    return ""
                problem = f"Error {doing.lower().removesuffix('e')}ing: {error.message}"
                self.write(Tell(about=owner, reason=f"Failed{doing}", message=problem, event_type="Warning"))
                return error.message
            self.write(Tell(about=owner, reason=f"Successful{doing}", message=f"{done} {kind}: {item['metadata']['name']}"))
        return ""

    def _put(self, item: Object, subresource: str) -> Object:
        kind, namespace, name = self._place(item)
        body: Object = copy_of(item)
        body["metadata"].pop("resourceVersion", None)
        return self._resources.update(kind, namespace, name, lambda _: body, _OPTIONS, subresource=subresource).object

    def _place(self, item: Object) -> tuple[ResourceKind, str, str]:
        kind = self._resources.registry.by_kind(item["apiVersion"], item["kind"])
        assert kind is not None
        metadata = item["metadata"]
        return kind, metadata.get("namespace", ""), metadata.get("name", "")


def _is_in_ending_namespace(error: ApiError) -> bool:
    causes = (error.details or {}).get("causes", ())
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
