"""Notices answers that the control API gave from memory because its database was away, so that pages can show their
age.

The API marks such answers with `x-fairlead-stale` and `age`. The typed client hides headers, so a hook on the
connection collects the ages of one request's answers in a list that belongs to that request.
"""

from collections.abc import Sequence
from contextvars import ContextVar

import httpx

from fairlead_client.addresses import reaching

_ages: ContextVar[list[int] | None] = ContextVar("fairlead_web_stale_ages", default=None)


def watch() -> list[int]:
    """Start collecting ages for this request.

    The list grows with each stale answer, including answers to tasks that the request started.
    """
    ages: list[int] = []
    _ages.set(ages)
    return ages


async def _note(response: httpx.Response) -> None:
    ages = _ages.get()
    age = response.headers.get("age", "")
    if ages is not None and "x-fairlead-stale" in response.headers and age.isdigit():
        ages.append(int(age))


def api_client(urls: str | Sequence[str], transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """The shared connections to the API, watched for stale answers. Proxies named in the environment are not used."""
    base_url, transport = reaching(urls, transport)
    return httpx.AsyncClient(
        base_url=base_url,
        transport=transport,
        timeout=10.0,
        trust_env=False,
        headers={"accept": "application/json"},
        event_hooks={"response": [_note]},
    )
