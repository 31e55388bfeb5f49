"""Keeps kopf from writing its progress annotations on pools."""

from typing import Any, cast

import kopf


class NothingHandled(kopf.DiffBaseStorage):
    """Stores no last-handled configuration on pools.

    Kopf uses it to tell updates from creations. The operator handles neither, because every reconciliation reads the
    whole pool. The annotation would hold each pool's spec a second time and cost a write per change of it.
    """

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        """Return an empty essence: nothing compares it, and kopf would copy every object at every event."""
        return cast(kopf.BodyEssence, dict[str, Any]())

    def fetch(self, *, body: kopf.Body) -> None:
        """Return None: nothing was handled before."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""
