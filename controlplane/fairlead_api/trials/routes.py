"""The route POST /v1/pools/{namespace}/{name}/test-request."""

import secrets
from functools import partial
from typing import Annotated, Any

from fastapi import Depends

from fairlead.tables import PoolKey
from fairlead_api.access.guards import Guard
from fairlead_api.features import Feature, Infra
from fairlead_api.http.answers import answer
from fairlead_api.http.bodies import known_fields
from fairlead_api.http.routes import Routes
from fairlead_api.infra.callers import Caller
from fairlead_api.infra.pool_rows import pool_row
from fairlead_api.trials.sending import Trials
from fairlead_client.resources.access import AccessRole
from fairlead_client.resources.trials import Trial, TrialAnswer


def trial_routes(infra: Infra, guard: Guard, trials: Trials) -> Routes:
    """Return the route of test requests."""
    routes = Routes(prefix="/v1", tags=["pools"])
    Operator = Annotated[Caller, Depends(guard.needs(AccessRole.OPERATOR))]  # noqa: N806 - it is a type

    @routes.post("/pools/{namespace}/{name}/test-request", response_model=TrialAnswer, dependencies=[Depends(known_fields(Trial))])
    async def send_test_request(namespace: str, name: str, body: Trial, caller: Operator) -> Any:
        """Sends one request to a pool through a router. Returns the response, whatever its status, with its headers and
        the routing decision. The request counts like any client's. The prompt and the key are not stored.
        """
        key = PoolKey(namespace=namespace, name=name)
        async with infra.reads.reading() as connection:
            model = (await pool_row(connection, key)).model
        return answer(await trials.send(str(key), model, body))

    return routes


def feature(infra: Infra, guard: Guard) -> Feature:
    """Return the feature of test requests."""
    trials = Trials(infra.settings.gateway_url, partial(secrets.token_hex, 16))
    return Feature(routes=(trial_routes(infra, guard, trials),))
