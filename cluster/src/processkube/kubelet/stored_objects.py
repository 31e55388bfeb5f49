"""Secrets and ConfigMaps of a pod's namespace, in their state at the start of its container. Pure."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from processkube.kubelet.refusals import bad_configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One object; `kind` is Secret or ConfigMap."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredObjects:
    """The objects by reference; None for an object that does not exist."""

    found: Mapping[Reference, Mapping[str, Any] | None]

    def data(self, reference: Reference, *, optional: bool) -> dict[str, bytes]:
        """Return the object's keys. Raises PodRefused for an object that is missing, unless it is optional."""
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
