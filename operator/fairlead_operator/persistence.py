"""Keeps kopf from writing its progress annotations on pools."""

import kopf


class NothingHandled(kopf.DiffBaseStorage):
    """Stores no last-handled configuration on pools.

    Kopf uses it to tell updates from creations. The operator handles neither, because every reconciliation reads the
    whole pool. The annotation would hold each pool's spec a second time and cost a write per change of it.
    """

    def fetch(self, *, body: kopf.Body) -> None:
        """Return None: nothing was handled before."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""
