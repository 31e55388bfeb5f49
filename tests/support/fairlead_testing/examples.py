"""How many examples property tests run, by the profile that pytest was started with: those of `processkube.testing`."""

from processkube.testing.examples import examples, register_profiles, search

__all__ = ["examples", "register_profiles", "search"]
