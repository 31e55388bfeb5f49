"""The number of examples of property tests for each profile of pytest, as in `processkube.testing`."""

from processkube.testing.examples import examples, register_profiles, search

__all__ = ["examples", "register_profiles", "search"]
