"""Pools whose policy learns: their samples go to the trainer, its models come back and are swapped in whole.

Nothing of this can make a request fail or wait: without a trainer the model in use stays, until the policy finds it too
old and asks its heuristic.
"""

from __future__ import annotations

import logging

from fairlead.predictors.model_bytes import from_bytes
from fairlead.predictors.models import Model
from fairlead.predictors.refusals import ModelRefused
from fairlead.predictors.reports import LearningReport
from fairlead.routing.contracts.policies import LearnsOnline
from fairlead_router.metrics import RouterMetrics
from fairlead_router.pool import Pool
from fairlead_router.pools import Pools
from fairlead_router.training.frames import Lesson
from fairlead_router.training.trainer import Trainer, TrainerLost

TRAIN_SECONDS = 1.0
LESSON_SAMPLES = 100
"""A lesson has at least so many."""

logger = logging.getLogger(__name__)


class PoolTraining:
    """Trains for all pools of a router that learn, one after the other."""

    def __init__(self, pools: Pools, trainer: Trainer, metrics: RouterMetrics) -> None:
        self._pools = pools
        self._trainer = trainer
        self._counters = metrics.training
        metrics.learning_reports = self.reports
        self._models: dict[str, tuple[LearnsOnline, Model]] = {}
        """The policy of each pool that was last given a model, and that."""

    async def train(self) -> None:
        """Look once at what was learnt; done every TRAIN_SECONDS."""
        learning = [(pool, policy) for pool in self._pools.all() if (policy := pool.scheduler.learns_online) is not None]
        for pool, policy in learning:
            self._hand_on(pool, policy)
            if not self._trainer.rests and policy.learning().waiting_samples >= LESSON_SAMPLES:
                await self._teach(pool, policy)
        present = {str(pool.key) for pool, _ in learning}
        for gone in self._models.keys() - present:
            del self._models[gone]

    def reports(self) -> dict[str, LearningReport]:
        """What each pool's policy has learnt, by pool."""
        policies = ((str(pool.key), pool.scheduler.learns_online) for pool in self._pools.all())
        return {name: policy.learning() for name, policy in policies if policy is not None}

    def _hand_on(self, pool: Pool, policy: LearnsOnline) -> None:
        """A policy that was built anew, because a parameter changed, goes on with the model of the one before."""
        known = self._models.get(str(pool.key))
        if known is not None and known[0] is not policy:
            self._adopt(pool, policy, known[1])

    async def _teach(self, pool: Pool, policy: LearnsOnline) -> None:
        name = str(pool.key)
        try:
            learnt = await self._trainer.learn(Lesson.of(name, policy.learner_settings, policy.take_samples()))
        except TrainerLost as error:
            self._counters.trainers_lost += 1
            logger.warning("trainer lost, it is started anew", extra={"pool": name, "error": str(error)})
            return
        if learnt.model is None:
            return
        try:
            model = from_bytes(learnt.model)
        except ModelRefused as error:
            self._refuse(pool, error)
            return
        if self._adopt(pool, policy, model):
            extra = {"pool": name, "round": model.round, "samples": model.trained_on, "seconds": round(learnt.seconds, 2)}
            logger.info("model in use", extra=extra | {"error_seconds": model.evaluation.error_seconds})

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
        logger.warning("model refused, the one before stays", extra={"pool": str(pool.key), "error": str(error)})
