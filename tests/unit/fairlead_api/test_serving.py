"""Where the API may be served."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_api.serving import Place, serve
from fairlead_api.settings import Settings


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
def test_everybody_is_let_in_on_a_loopback_address_only(host: str) -> None:
    settings = Settings(database_url="postgresql+psycopg://nobody@127.0.0.1:1/none", auth_mode="none")
    with pytest.raises(InvalidInput, match=f"^FAIRLEAD_AUTH_MODE: 'none' .*127.0.0.1 instead of --host {host}"):
        serve(settings, Place(host=host, port=0, wait_for_database=0), lambda *_: pytest.fail("it was served"))
