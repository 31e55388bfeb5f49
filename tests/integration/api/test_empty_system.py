"""The pages of an empty system, without pool, instance or session: each gives the next step, and no number is
invented.
"""

import re

import httpx
import pytest

from fairlead_testing.running.api import SECRETS, ApiInstance
from fairlead_testing.running.every_page import OF_AN_EMPTY_SYSTEM
from fairlead_testing.running.streaming_asgi import StreamingAsgiTransport
from fairlead_testing.running.web_client import COOKIE, ORIGIN
from fairlead_web.app import create_web_app

MADE_OF_NOTHING = re.compile(r"\b0 (?:of|/) 0\b|– of|\bNone\b|\bnan\b|\binf\b|undefined|these filters")


@pytest.mark.parametrize("role", ["viewer", "admin"])
async def test_no_page_of_an_empty_system_shows_a_number_of_nothing(role: str, api: ApiInstance) -> None:
    web = create_web_app(StreamingAsgiTransport(api.app), "http://api.test", ORIGIN)
    said = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url=ORIGIN, cookies={COOKIE: SECRETS[role]}) as http:
        for path in OF_AN_EMPTY_SYSTEM:
            answer = await http.get(path)
            assert answer.status_code == 200, path
            said[path] = " ".join(re.sub(r"<script.*?</script>|<[^>]+>", " ", answer.text.split("<main", 1)[1]).split())
    assert {path: found for path, words in said.items() if (found := MADE_OF_NOTHING.findall(words))} == {}
    assert "No pools yet" in said["/"] and "kubectl apply" in said["/"]
    assert "New schedule" not in said["/schedules"], "there is no pool that could have one"
