"""On which addresses the API may listen."""

import gc

import pytest
import uvicorn

from fairlead.errors import InvalidInput
from fairlead_api import serving
from fairlead_api.serving import COLLECTED_AFTER, Place, serve
from fairlead_api.settings import Settings


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
def test_everybody_is_let_in_on_a_loopback_address_only(host: str) -> None:
    settings = Settings(database_url="postgresql+psycopg://nobody@127.0.0.1:1/none", auth_mode="none")
    with pytest.raises(InvalidInput, match=f"^FAIRLEAD_AUTH_MODE: 'none' .*127.0.0.1 instead of --host {host}"):
        serve(settings, Place(host=host, port=0, wait_for_database=0), lambda *_: pytest.fail("it was served"))


def test_what_lives_as_long_as_the_process_is_not_searched_for_garbage_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, tuple[int, int, int]]] = []

    def run(server: uvicorn.Server, **_: object) -> None:
        seen.append((gc.get_freeze_count(), gc.get_threshold()))
        server.started = True

    monkeypatch.setattr(serving, "await_database", lambda *_: None)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    settings = Settings(database_url="postgresql+psycopg://nobody@127.0.0.1:1/none", migrate=False)
    before = gc.get_threshold()
    try:
        serve(settings, Place(host="127.0.0.1", port=0, wait_for_database=0), lambda *_: lambda *_: None)  # type: ignore[arg-type]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
    ((frozen, threshold),) = seen
    assert frozen > 1000
    assert threshold == COLLECTED_AFTER
