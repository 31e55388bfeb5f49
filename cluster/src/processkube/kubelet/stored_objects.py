"""Secrets and ConfigMaps of a pod's namespace, as they were read when a container was started. This module is pure."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from processkube.kubelet.refusals import bad_configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference to a Secret or a ConfigMap, by kind and name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredObjects:
    """The objects that were read, by reference; an object is None if it does not exist."""

    found: Mapping[Reference, Mapping[str, Any] | None]

    def data(self, reference: Reference, *, optional: bool) -> dict[str, bytes]:
        """Return the object's data: key → value. If the object is missing, the result is empty if it is `optional`;
        otherwise raises PodRefused.
        """
        document = self.found.get(reference)
        if document is None:
            if optional:
                return {}
            raise bad_configuration(f'{reference.kind.lower()} "{reference.name}" not found')
        encoded = document.get("data") or {}
        if reference.kind == "Secret":
            return {key: base64.b64decode(value) for key, value in encoded.items()}
        binary = document.get("binaryData") or {}
        return {key: value.encode() for key, value in encoded.items()} | {key: base64.b64decode(value) for key, value in binary.items()}
