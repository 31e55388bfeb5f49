"""Trains the policies of pools whose policy learns: sends samples of decisions to the trainer, and gives the policy
each model that the trainer returns.

This module cannot make a request fail or wait. Without a trainer, the policy keeps its current model, until the policy
considers the model too old and decides by its heuristic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from fairlead.predictors.model_bytes import from_bytes
from fairlead.predictors.models import Model
from fairlead.predictors.refusals import ModelRefused
from fairlead.predictors.reports import LearningReport
from fairlead.reports.predictors import ModelFigures, SharedModel, TrainedModel
from fairlead.routing.contracts.policies import LearnsOnline
from fairlead.tables import PoolKey
from fairlead_client.outcomes import Outcome, Taken
from fairlead_router.metrics.metrics import RouterMetrics
from fairlead_router.pools.pool import Pool
from fairlead_router.pools.pools import Pools
from fairlead_router.training.frames import Lesson
from fairlead_router.training.trainer import Trainer, TrainerLost

TRAIN_SECONDS = 1.0
ASK_SECONDS = 30.0
"""Seconds between two questions to the store for a shared model, for a pool without a model."""

LESSON_SAMPLES = 100
"""Minimum number of new samples for training a model."""

logger = logging.getLogger(__name__)


class ModelStore(Protocol):
    """A store through which all routers of a pool share trained models: the control API."""

    async def post_model(self, model: TrainedModel) -> Outcome[None]:
        """Store a model that this router trained."""

    async def newest_model(self, pool: PoolKey) -> Outcome[SharedModel]:
        """Return the pool's newest model, trained by any router."""


class PoolTraining:
    """Trains the policies of all learning pools of this router, one after the other.

    A pool without a model begins with the newest model that any router trained. `new_id` makes the ids of models.
    """

    def __init__(
        self,
        router_id: str,
        pools: Pools,
        trainer: Trainer,
        store: ModelStore,
        metrics: RouterMetrics,
        now: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._router_id = router_id
        self._pools = pools
        self._trainer = trainer
        self._store = store
        self._now = now
        self._new_id = new_id
        self._ask_at: dict[str, float] = {}
        """By pool without a model: the time from which the store may be asked for a shared model again."""
        self._told: dict[str, LearningReport] = {}
        """By pool: the policy's learning report at the time at which its model was last shared."""
        self._counters = metrics.training
        metrics.learning_reports = self.reports
        self._models: dict[str, tuple[LearnsOnline, Model]] = {}
        """By pool: the last policy that got a model, and this model."""

    async def train(self) -> None:
        """Train each learning policy that has enough samples. Runs every TRAIN_SECONDS."""
        learning = [(pool, policy) for pool in self._pools.all() if (policy := pool.scheduler.learns_online) is not None]
        for pool, policy in learning:
            self._hand_on(pool, policy)
            if policy.learning().model is None:
                await self._take_over(pool, policy)
            if not self._trainer.rests and policy.learning().waiting_samples >= LESSON_SAMPLES:
                await self._teach(pool, policy)
        present = {str(pool.key) for pool, _ in learning}
        for by_pool in (self._models, self._ask_at, self._told):
            for gone in by_pool.keys() - present:
                del by_pool[gone]

    def reports(self) -> dict[str, LearningReport]:
        """Return the report of each pool's learning policy, by pool."""
        policies = ((str(pool.key), pool.scheduler.learns_online) for pool in self._pools.all())
        return {name: policy.learning() for name, policy in policies if policy is not None}

    async def _take_over(self, pool: Pool, policy: LearnsOnline) -> None:
        """Give the policy the newest model that any router has trained, if there is such a model."""
        name, now = str(pool.key), self._now()
        if now < self._ask_at.get(name, 0.0):
            return
        self._ask_at[name] = now + ASK_SECONDS
        outcome = await self._store.newest_model(pool.key)
        if not isinstance(outcome, Taken) or outcome.answer.content is None or policy.learning().model is not None:
            return
        try:
            model = from_bytes(outcome.answer.content)
        except ModelRefused as error:
            self._refuse(pool, error)
            return
        if self._adopt(pool, policy, model):
            logger.info("shared model in use", extra={"pool": name, "version": outcome.answer.version})

    async def _share(self, pool: Pool, before: LearningReport, model: Model, content: bytes) -> None:
        """Send the new model to the store for other routers, together with the results of the previous model. If the
        control API cannot be reached, only log this.
        """
        name = str(pool.key)
        told = self._told.get(name)
        self._told[name] = before
        figures = model_figures(self._router_id, model, before, told)
        outcome = await self._store.post_model(
            TrainedModel(id=self._new_id(), pool=pool.key, at=self._now(), figures=figures, content=content)
        )
        if not isinstance(outcome, Taken):
            logger.warning("model not kept by the control API", extra={"pool": name, "error": outcome.problem})

    def _hand_on(self, pool: Pool, policy: LearnsOnline) -> None:
        """Give the pool's policy the model of the previous policy, if the policy is new because a parameter has
        changed.
        """
        known = self._models.get(str(pool.key))
        if known is not None and known[0] is not policy:
            self._adopt(pool, policy, known[1])

    async def _teach(self, pool: Pool, policy: LearnsOnline) -> None:
        name = str(pool.key)
        try:
            learnt = await self._trainer.learn(Lesson.of(name, policy.learner_settings, policy.take_samples()))
        except TrainerLost as error:
            self._counters.trainers_lost += 1
            logger.warning("trainer lost, it is restarted", extra={"pool": name, "error": str(error)})
            return
        if learnt.model is None:
            return
        try:
            model = from_bytes(learnt.model)
        except ModelRefused as error:
            self._refuse(pool, error)
            return
        before = policy.learning()
        if self._adopt(pool, policy, model):
            extra = {"pool": name, "round": model.round, "samples": model.trained_on, "seconds": round(learnt.seconds, 2)}
            logger.info("model in use", extra=extra | {"error_seconds": model.evaluation.error_seconds})
            await self._share(pool, before, model, learnt.model)

    def _adopt(self, pool: Pool, policy: LearnsOnline, model: Model) -> bool:
        try:
            policy.adopt(model)
        except ModelRefused as error:
            self._refuse(pool, error)
            self._models.pop(str(pool.key), None)
            return False
        self._models[str(pool.key)] = (policy, model)
        self._counters.rounds[str(pool.key)] += 1
        return True

    def _refuse(self, pool: Pool, error: ModelRefused) -> None:
        self._counters.refused[str(pool.key), error.fault.value] += 1
        logger.warning("trained model refused; the previous model stays in use", extra={"pool": str(pool.key), "error": str(error)})


def model_figures(router_id: str, model: Model, before: LearningReport, told: LearningReport | None) -> ModelFigures:
    """Return the statistics of a new model, and of the decisions since the previous model was shared.

    `before`: the policy's learning report now. `told`: its learning report when the previous model was shared; None if
    no model was shared.
    """
    counted = {} if told is None else told.heuristic_choices
    by_heuristic = {reason.value: count - counted.get(reason, 0) for reason, count in before.heuristic_choices.items()}
    since = before.learned_choices - (0 if told is None else told.learned_choices)
    return ModelFigures(
        router=router_id,
        round=model.round,
        samples_seen=model.samples_seen,
        trained_on=model.trained_on,
        held_out_error_seconds=model.evaluation.error_seconds,
        spread_seconds=model.evaluation.spread_seconds,
        error_seconds=before.error_seconds,
        formula_error_seconds=before.formula_error_seconds,
        mean_ttft_seconds=before.mean_ttft_seconds,
        drift=before.drift,
        learned_choices=max(0, since),
        heuristic_choices={reason: count for reason, count in by_heuristic.items() if count > 0},
    )
