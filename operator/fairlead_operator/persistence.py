"""What kopf would write on objects to remember what it did, and what it may write on ours."""

import kopf


class NothingHandled(kopf.DiffBaseStorage):
    """No last-handled configuration on pools. Kopf needs it to tell updates from creations; the operator has handlers
    for neither: every reconciliation reads the whole pool. The annotation would hold each pool's spec a second time and
    cost a write per change of it.
    """

    def fetch(self, *, body: kopf.Body) -> None:
        """Nothing was handled before."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing."""
