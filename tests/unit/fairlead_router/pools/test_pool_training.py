"""A router's use of its trainer's answers: no error of the trainer reaches a request."""

from dataclasses import replace
from itertools import count

import pytest

from fairlead.predictors.model_bytes import to_bytes
from fairlead.predictors.reports import HeuristicReason
from fairlead.reports.predictors import SharedModel, TrainedModel
from fairlead.routing.choosing.experience import JUDGED_AFTER
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import PoolKey, RoutingFacts, RoutingTable
from fairlead_client.outcomes import Cause, Later, Outcome, Taken
from fairlead_router.metrics.metrics import RouterMetrics, render
from fairlead_router.pools.pool_training import ASK_SECONDS, LESSON_SAMPLES, PoolTraining
from fairlead_router.pools.pools import Pools
from fairlead_router.training.frames import Learnt, Lesson
from fairlead_router.training.trainer import Trainer, TrainerLost
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.worlds.learnt_models import damaged, sum_of

SOUND = sum_of("prompt_tokens", seconds_per=0.01)
"""A model that expects the times that `World.serve` makes: a second for a hundred tokens."""


class ScriptedTrainer(Trainer):
    """Answers each lesson as a test prescribes: with a model's bytes, with nothing, or by ending."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.answers: list[bytes | TrainerLost | None] = []
        self.lessons: list[Lesson] = []
        self.resting = False

    @property
    def rests(self) -> bool:
        return self.resting

    async def learn(self, lesson: Lesson) -> Learnt:
        self.lessons.append(lesson)
        answer = self.answers.pop(0)
        if isinstance(answer, TrainerLost):
            raise answer
        return Learnt(model=answer, seconds=1.5)


class Store:
    """The control API's models, as a router sees them."""

    def __init__(self) -> None:
        self.up = True
        self.shared = SharedModel()
        self.kept: list[TrainedModel] = []
        self.asked = 0

    async def post_model(self, model: TrainedModel) -> Outcome[None]:
        if not self.up:
            return Later(cause=Cause.UNREACHABLE, problem="away")
        self.kept.append(model)
        return Taken(None)

    async def newest_model(self, pool: PoolKey) -> Outcome[SharedModel]:
        self.asked += 1
        return Taken(self.shared) if self.up else Later(cause=Cause.UNREACHABLE, problem="away")


class World:
    """A pool of two instances under `lodestar`, or another policy that learns, and its router's training."""

    def __init__(self, policy: str = "lodestar", **parameters: object) -> None:
        self.policy = policy
        self.metrics = RouterMetrics()
        self.pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), self.metrics, lambda: 0.0)
        self.table = self.with_parameters(parameters)
        assert self.pools.apply(self.table)
        self.trainer = ScriptedTrainer()
        self.now = 0.0
        self.store = Store()
        ids = count(1)
        self.training = PoolTraining(
            "router-0", self.pools, self.trainer, self.store, self.metrics, lambda: self.now, lambda: f"m{next(ids)}"
        )
        self.served = 0

    def with_parameters(self, parameters: dict[str, object], version: int = 1) -> RoutingTable:
        plain = routing_table(["127.0.0.1:1", "127.0.0.1:2"])
        return replace(plain, version=version, routing=RoutingFacts(policy=self.policy, parameters=parameters, prefills_in_flight=0))

    def serve(self, requests: int = LESSON_SAMPLES) -> None:
        """Serve this many requests, each with a first token a second after its arrival."""
        pool = self.pools.all()[0]
        for _ in range(requests):
            self.served += 1
            name = f"r{self.served}"
            pool.scheduler.submit(RoutingRequest(id=name, arrived_at=self.now, prompt_tokens=100, blocks=(), first_bytes_hash=1), self.now)
            self.now += 1.0
            pool.scheduler.first_token(name, self.now)
            pool.scheduler.complete(name, self.now, 1, None)

    def figure(self, metric: str) -> float:
        lines = [line for line in render(self.metrics).decode().splitlines() if line.startswith(metric)]
        return float(lines[0].rpartition(" ")[2]) if lines else 0.0

    def choices(self, by: str) -> float:
        return self.figure(f'fairlead_router_learning_choices_total{{by="{by}",pool="')


async def test_samples_go_to_the_trainer_in_batches_and_its_model_chooses_from_then_on() -> None:
    world = World()
    world.trainer.answers = [to_bytes(sum_of("prefill_tokens"))]
    world.serve(LESSON_SAMPLES - 1)
    await world.training.train()
    assert world.trainer.lessons == []
    world.serve(1)
    await world.training.train()
    assert len(world.trainer.lessons[0].samples) == LESSON_SAMPLES
    assert (world.choices("cold-start"), world.choices("model")) == (LESSON_SAMPLES, 0)
    world.serve(10)
    assert (world.choices("cold-start"), world.choices("model")) == (LESSON_SAMPLES, 10)
    assert world.figure("fairlead_router_learning_models_total") == 1


async def test_a_lost_trainer_changes_nothing_but_counters_until_the_model_is_too_old() -> None:
    world = World(stale_samples=150)
    world.trainer.answers = [to_bytes(SOUND), TrainerLost("killed"), TrainerLost("killed")]
    world.serve()
    await world.training.train()
    for _ in range(2):
        world.serve()
        await world.training.train()
    assert world.figure("fairlead_router_trainers_lost_total") == 2
    assert world.choices("model") == 151
    assert world.choices(HeuristicReason.STALE_MODEL.value) == 49
    world.trainer.resting = True
    world.serve()
    await world.training.train()
    assert len(world.trainer.lessons) == 3, "a trainer that rests is given nothing"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (damaged(sum_of("prefill_tokens")), "corrupt"),
        (b"", "corrupt"),
        (to_bytes(replace(sum_of("prefill_tokens"), feature_names=("other",))), "features"),
    ],
)
async def test_a_model_that_cannot_be_used_is_counted_and_the_one_before_goes_on(content: bytes, fault: str) -> None:
    world = World()
    world.trainer.answers = [to_bytes(SOUND), content]
    for _ in range(2):
        world.serve()
        await world.training.train()
    world.serve(5)
    assert world.choices("model") == LESSON_SAMPLES + 5
    assert world.figure(f'fairlead_router_learning_models_refused_total{{fault="{fault}"') == 1
    assert world.figure("fairlead_router_learning_models_total") == 1


async def test_a_policy_whose_parameters_change_keeps_its_model() -> None:
    world = World()
    world.trainer.answers = [to_bytes(sum_of("prefill_tokens"))]
    world.serve()
    await world.training.train()
    assert world.pools.apply(world.with_parameters({"near_best": 0.2}, version=2))
    await world.training.train()
    world.serve(3)
    assert world.choices("model") == 3


async def test_in_shadow_mode_the_heuristic_places_and_errors_are_told() -> None:
    world = World(mode="Shadow")
    world.trainer.answers = [to_bytes(sum_of("prompt_tokens", seconds_per=0.005))]
    world.serve()
    await world.training.train()
    world.serve(20)
    assert (world.choices("model"), world.choices("shadow")) == (0, LESSON_SAMPLES + 20)
    assert world.figure('fairlead_router_learning_error_seconds{of="prediction"') == pytest.approx(0.5)
    assert world.figure('fairlead_router_learning_error_seconds{of="mean-ttft"') == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds_per", "by"), [(0.01, "model"), (0.03, "losing")])
async def test_under_fairlead_a_model_chooses_once_it_was_seen_to_err_no_more_than_the_formula(seconds_per: float, by: str) -> None:
    world = World("fairlead", learned_ttft=True)
    world.trainer.answers = [to_bytes(sum_of("prompt_tokens", seconds_per=seconds_per))]
    world.serve()
    await world.training.train()
    world.serve(JUDGED_AFTER)
    assert (world.choices("model"), world.choices("unproven")) == (0, JUDGED_AFTER)
    world.serve(10)
    assert world.choices(by) == 10
    error, formula = (world.figure(f'fairlead_router_learning_error_seconds{{of="{of}"') for of in ("prediction", "formula"))
    assert error == pytest.approx(abs(1.0 - 100 * seconds_per))
    assert (error <= formula) is (by == "model"), "the formula goes by the measured speed, and errs as little here"
    assert world.store.kept[0].figures.heuristic_choices == {"cold-start": LESSON_SAMPLES}


async def test_a_pool_without_a_model_begins_with_the_newest_that_any_router_trained() -> None:
    world = World()
    await world.training.train()
    world.serve(5)
    assert world.choices("model") == 0
    world.store.shared = SharedModel(version=7, content=to_bytes(sum_of("prefill_tokens")))
    await world.training.train()
    assert world.store.asked == 1, "it asks now and then, not every second"
    world.now += ASK_SECONDS
    await world.training.train()
    world.serve(5)
    assert world.choices("model") == 5
    world.now += ASK_SECONDS
    await world.training.train()
    assert world.store.asked == 2, "who has a model asks for none"


async def test_a_damaged_shared_model_is_refused_and_counted() -> None:
    world = World()
    world.store.shared = SharedModel(version=7, content=damaged(sum_of("prefill_tokens")))
    await world.training.train()
    world.serve(5)
    assert world.choices("cold-start") == 5
    assert world.figure('fairlead_router_learning_models_refused_total{fault="corrupt"') == 1


async def test_models_are_kept_with_what_became_of_the_one_before() -> None:
    world = World()
    content = to_bytes(sum_of("prompt_tokens", seconds_per=0.005))
    world.trainer.answers = [content, content]
    for _ in range(2):
        world.serve()
        await world.training.train()
    first, second = world.store.kept
    assert (first.id, second.id, first.content, first.figures.router) == ("m1", "m2", content, "router-0")
    assert (first.figures.learned_choices, first.figures.heuristic_choices) == (0, {"cold-start": LESSON_SAMPLES})
    assert first.figures.error_seconds is None
    assert (second.figures.learned_choices, second.figures.heuristic_choices) == (LESSON_SAMPLES, {})
    assert second.figures.error_seconds == pytest.approx(0.5)
    assert second.figures.mean_ttft_seconds == pytest.approx(1.0)


async def test_without_the_control_api_a_model_is_used_all_the_same() -> None:
    world = World()
    world.store.up = False
    world.trainer.answers = [to_bytes(sum_of("prefill_tokens"))]
    world.serve()
    await world.training.train()
    world.serve(3)
    assert world.choices("model") == 3
    assert world.store.kept == []
