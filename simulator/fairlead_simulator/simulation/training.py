"""Training of a learning policy in virtual time. A learner takes the policy's samples. A new model arrives after the
time that a trainer on the router's machine would need.

A round of training is computed at once; the virtual clock delays only its result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.predictors.learners import Learner
from fairlead.predictors.models import Evaluation, Model
from fairlead.routing.contracts.policies import LearnsOnline
from fairlead.routing.scheduling.scheduler import PoolScheduler
from fairlead_simulator.simulation.events import EventQueue

SECONDS_PER_STEP = 0.005
"""Assumed seconds of one training step of 256 samples through 128 units, on one core beside a busy router (measured: 3
to 4 ms).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRound:
    """A finished round of training. `at` is the time in seconds at which its model arrived."""

    at: float
    round: int
    trained_on: int
    evaluation: Evaluation


class Training:
    """The trainer of one run.

    `scheduler` returns the scheduler whose policy learns; it is a function, because a restart of the routers replaces
    the scheduler. When the policy is replaced by another policy, its samples and models are forgotten.
    """

    def __init__(self, scheduler: Callable[[], PoolScheduler], events: EventQueue, seed: int) -> None:
        self._scheduler = scheduler
        self._events = events
        self._seed = seed
        self._policy: LearnsOnline | None = None
        self._learner: Learner | None = None
        self._busy = False
        self.rounds: list[TrainedRound] = []

    def second(self, now: float) -> None:
        """Take new samples from the policy, and begin a round of training if one is due. Does nothing while a round is
        running.
        """
        policy = self._scheduler().learns_online
        if policy is None or self._busy:
            return
        if policy is not self._policy or self._learner is None:
            self._policy, self._learner = policy, Learner(policy.learner_settings, self._seed)
        self._learner.add(policy.take_samples())
        if self._learner.due:
            self._busy = True
            model = self._learner.train()
            seconds = SECONDS_PER_STEP * self._learner.steps(model.trained_on)
            self._events.at(now + seconds, self._trained, (policy, model))

    def _trained(self, outcome: Any, now: float) -> None:
        policy: LearnsOnline
        model: Model
        policy, model = outcome
        self._busy = False
        policy.adopt(model)
        self.rounds.append(TrainedRound(at=now, round=model.round, trained_on=model.trained_on, evaluation=model.evaluation))
