"""How long tests wait for what other tasks and processes bring about: as long as those of the sandbox's Kubernetes."""

from processkube.testing.waiting import PATIENCE_SECONDS

__all__ = ["PATIENCE_SECONDS"]
