"""Models of learning policies: each is stored once, in versions, and given to any router that asks."""

import msgspec
import pytest

from fairlead.reports.predictors import ModelFigures, SharedModel, TrainedModel
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Cause, Later, Taken
from fairlead_testing.running.api import CHAT, a_report, a_state, an_instance
from fairlead_testing.running.seams import Clients

UNKNOWN = PoolKey(namespace="default", name="unknown")


@pytest.fixture(autouse=True)
async def pool(clients: Clients) -> None:
    await clients.operator.put_pool_state(CHAT, a_state(an_instance("a")))


def a_model(name: str, content: bytes = b"weights", router: str = "router-0", pool: PoolKey = CHAT) -> TrainedModel:
    figures = ModelFigures(router=router, round=1, samples_seen=1000, trained_on=800, heuristic_choices={"cold-start": 1012})
    return TrainedModel(id=name, pool=pool, at=a_report("now").sent_at, figures=figures, content=content)


async def test_a_pool_without_a_model_says_so(clients: Clients) -> None:
    assert await clients.router_api.newest_model(CHAT) == Taken(SharedModel())


async def test_the_newest_model_is_handed_out_whichever_router_trained_it(clients: Clients) -> None:
    for number in range(6):
        model = a_model(f"m{number}", bytes([0, 255, number]), f"router-{number % 2}")
        assert await clients.router_api.post_model(model) == Taken(None)
        assert await clients.router_api.newest_model(CHAT) == Taken(SharedModel(version=number + 1, content=bytes([0, 255, number])))


async def test_a_model_that_is_sent_again_is_kept_once(clients: Clients) -> None:
    for name in ("m1", "m2", "m1"):
        assert await clients.router_api.post_model(a_model(name, name.encode())) == Taken(None)
    assert await clients.router_api.newest_model(CHAT) == Taken(SharedModel(version=2, content=b"m2"))


async def test_models_of_a_pool_that_is_not_known_are_declined(clients: Clients) -> None:
    for outcome in (await clients.router_api.post_model(a_model("m", pool=UNKNOWN)), await clients.router_api.newest_model(UNKNOWN)):
        assert isinstance(outcome, Later)
        assert outcome.cause is Cause.DECLINED


async def test_a_router_keeps_models_under_its_own_name_only(clients: Clients) -> None:
    outcome = await clients.router_api.post_model(a_model("m", router="somebody-else"))
    assert isinstance(outcome, Later)
    assert outcome.cause is Cause.DECLINED


def test_a_models_bytes_come_through_json_as_they_were() -> None:
    model = a_model("m", bytes(range(256)))
    assert msgspec.json.decode(msgspec.json.encode(model), type=TrainedModel) == model
