"""An answer that nests without end is an unreadable answer for every client, and never a RecursionError.

The depth that Python can read differs between interpreters.
"""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from fairlead_api.trials.sending import Trials
from fairlead_client.resources.trials import Trial
from fairlead_operator.sleepers import read_answer
from fairlead_process.kubernetes_api import _explain
from fairlead_serve.probing import Prober

DEEP = b'{"is_sleeping":' * 100_000
READERS: dict[str, Callable[[], Any]] = {
    "an engine that sleeps": lambda: read_answer(200, DEEP[:60_000]),
    "a refusal of the Kubernetes API": lambda: _explain(DEEP),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_an_answer_that_nests_is_read_as_none(read: Callable[[], Any]) -> None:
    assert read() is not None


async def test_an_engine_that_is_probed_may_nest() -> None:
    prober = Prober(httpx.MockTransport(lambda request: httpx.Response(200, content=DEEP)))
    found = await prober.findings("http://engine:8000")
    assert (found.version, found.models, found.sources) == (None, (), ())
    await prober.close()


async def test_a_trial_shows_the_beginning_of_an_answer_that_nests() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=DEEP))
    answer = await Trials("http://router", lambda: "0" * 32, transport).send("default/chat", "m", Trial(prompt="hello", max_tokens=1))
    assert answer.text is None
    assert len(answer.body) == 64 * 1024
