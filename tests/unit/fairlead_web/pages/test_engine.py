"""The engine's page."""

from fairlead_testing.fakes.public_data.loads import CHAT, CODE
from fairlead_testing.running.web_client import visitor

COMMAND = "fairlead engines fit --pool {} --from now-1h --store"


async def test_a_pool_whose_requests_two_engines_serve_is_not_offered_a_fit_to_them() -> None:
    async with visitor() as viewer:
        viewer.fake.world.roles_wanted[CHAT] = {"prefill": 3, "decode": 5}
        divided, whole = [(await viewer.http.get(f"/pools/{pool}/engine")).text for pool in (CHAT, CODE)]
        assert "Two engines serve each request here" in divided
        assert COMMAND.format(CHAT) not in divided
        assert COMMAND.format(CODE) in whole
        assert "Two engines" not in whole
