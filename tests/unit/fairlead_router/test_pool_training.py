"""What a router does with its trainer's answers: nothing of it reaches a request."""

from dataclasses import replace

import pytest

from fairlead.predictors.model_bytes import to_bytes
from fairlead.predictors.reports import HeuristicReason
from fairlead.routing.contracts.requests import RoutingRequest
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead.tables import RoutingFacts, RoutingTable
from fairlead_router.metrics import RouterMetrics, render
from fairlead_router.pool_training import LESSON_SAMPLES, PoolTraining
from fairlead_router.pools import Pools
from fairlead_router.training.frames import Learnt, Lesson
from fairlead_router.training.trainer import Trainer, TrainerLost
from fairlead_testing.builders.routing_tables import routing_table
from fairlead_testing.worlds.learnt_models import damaged, sum_of


class ScriptedTrainer(Trainer):
    """Answers each lesson as a test says: a model's bytes, nothing, or its loss."""

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


class World:
    """A pool of two instances under `lodestar`, and its router's training."""

    def __init__(self, **parameters: object) -> None:
        self.metrics = RouterMetrics()
        self.pools = Pools(lambda table: PoolScheduler(table, "router-0", 1), self.metrics, lambda: 0.0)
        self.table = self.with_parameters(parameters)
        assert self.pools.apply(self.table)
        self.trainer = ScriptedTrainer()
        self.training = PoolTraining(self.pools, self.trainer, self.metrics)
        self.now = 0.0
        self.served = 0

    def with_parameters(self, parameters: dict[str, object], version: int = 1) -> RoutingTable:
        plain = routing_table(["127.0.0.1:1", "127.0.0.1:2"])
        return replace(plain, version=version, routing=RoutingFacts(policy="lodestar", parameters=parameters, prefills_in_flight=0))

    def serve(self, count: int = LESSON_SAMPLES) -> None:
        """So many requests, each with a first token a second after it came."""
        pool = self.pools.all()[0]
        for _ in range(count):
            self.served += 1
            name = f"r{self.served}"
            pool.scheduler.submit(RoutingRequest(id=name, arrived_at=self.now, prompt_tokens=100, blocks=(), first_bytes_hash=1), self.now)
            self.now += 1.0
            pool.scheduler.first_token(name, self.now)
            pool.scheduler.complete(name, self.now, 1, None)

    def count(self, metric: str) -> float:
        lines = [line for line in render(self.metrics).decode().splitlines() if line.startswith(metric)]
        return float(lines[0].rpartition(" ")[2]) if lines else 0.0

    def choices(self, by: str) -> float:
        return self.count(f'fairlead_router_learning_choices_total{{by="{by}",pool="')


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
    assert world.count("fairlead_router_learning_models_total") == 1


async def test_a_lost_trainer_changes_nothing_but_counters_until_the_model_is_too_old() -> None:
    world = World(stale_samples=150)
    world.trainer.answers = [to_bytes(sum_of("prefill_tokens")), TrainerLost("killed"), TrainerLost("killed")]
    world.serve()
    await world.training.train()
    for _ in range(2):
        world.serve()
        await world.training.train()
    assert world.count("fairlead_router_trainers_lost_total") == 2
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
    world.trainer.answers = [to_bytes(sum_of("prefill_tokens")), content]
    for _ in range(2):
        world.serve()
        await world.training.train()
    world.serve(5)
    assert world.choices("model") == LESSON_SAMPLES + 5
    assert world.count(f'fairlead_router_learning_models_refused_total{{fault="{fault}"') == 1
    assert world.count("fairlead_router_learning_models_total") == 1


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
    assert world.count('fairlead_router_learning_error_seconds{of="prediction"') == pytest.approx(0.5)
    assert world.count('fairlead_router_learning_error_seconds{of="mean-ttft"') == pytest.approx(1.0)
