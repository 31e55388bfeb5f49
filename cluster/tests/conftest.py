"""Registers the profiles of property tests. What listens on this machine is asked directly, whatever proxy there is."""

import os

import pytest

from processkube.testing.examples import register_profiles
from processkube.testing.reruns import send_at_once

register_profiles()

_DIRECT = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1", "localhost")))
os.environ.update(no_proxy=_DIRECT, NO_PROXY=_DIRECT)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    send_at_once(config)
