"""Settings shared by all tests. How many examples property tests run is in `fairlead_testing.examples`.

A test that hangs is ended and named. First its timeout raises in it. Where that does not help (it blocks in C,
Hypothesis tries the example again, it hangs in what cleans up after it), its process ends a minute later, with every
thread's stack on standard error. pytest's own timers end at a test's first failure.
"""

import faulthandler
import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead_testing.examples import register_profiles
from fairlead_testing.long_files import place_of
from processkube.testing.reruns import send_at_once

register_profiles()

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as router and simulator do, before a test of the core loads numpy

_DIRECT = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1", "localhost")))
os.environ.update(no_proxy=_DIRECT, NO_PROXY=_DIRECT)  # what listens on this machine is asked directly

gc.set_threshold(10_000, 20, 10)  # a test makes much and keeps little: looking for cycles as often as usual is an eighth of its time

TESTS = Path(__file__).parent
GRACE_SECONDS = 60.0
_STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--first", action="append", default=[], metavar="FILE", help="begin with this test file or folder; can be repeated")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    send_at_once(config)
    assert sys.__stderr__ is not None
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno())  # while a test runs, its standard error is captured


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files of `--first` begin. A test's timeout is also for what it sets up, such as a sandbox: minutes on a slow
    machine.
    """
    first = [config.rootpath / name for name in config.getoption("first")]
    if missing := [str(one) for one in first if not one.exists()]:
        raise pytest.UsageError(f"--first: no such file or folder: {', '.join(missing)}")
    items.sort(key=lambda item: place_of(item.path, first))
    if config.getoption("timeout") is not None:
        return
    for item in items:
        if item.path.is_relative_to(TESTS / "e2e" / "sandbox") or item.path.is_relative_to(TESTS / "chaos"):
            item.add_marker(pytest.mark.timeout(2400))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # the modules stay


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, object, object]:
    """No garbage is collected while a failure is told: it parses sources, and if a task that nobody awaited goes in the
    middle of that, its error parses too, which Python 3.11 answers with a SystemError that ends the whole run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _watched(item):
        return (yield)


@contextmanager
def _watched(item: pytest.Item) -> Iterator[None]:
    """The watch is a thread of C, which ends the process also where no Python runs any more."""
    marker = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout") if given is None else given)
    if seconds == 0:
        yield
        return
    faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=item.config.stash[_STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
