"""Registers the profiles of property tests. What listens on this machine is asked directly, whatever proxy there is."""

import os

from processkube.testing.examples import register_profiles

register_profiles()

_DIRECT = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1", "localhost")))
os.environ.update(no_proxy=_DIRECT, NO_PROXY=_DIRECT)
