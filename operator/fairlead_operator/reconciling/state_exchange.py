"""Sends a pool's state to the control API, and decides how far its responses, or their absence, can be trusted."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.conditions.facts import LastHeard
from fairlead.draining import without_hasty_idleness, without_hasty_silence
from fairlead.instances import InstanceState
from fairlead.pool_states import PoolObservations, PoolState
from fairlead.tables import PoolKey, SloFacts
from fairlead_client.outcomes import Later, Refused, Taken
from fairlead_operator.control_plane import ControlPlane
from fairlead_operator.settings import Pace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of sending a pool's state to the control API once.

    Actions may be based on `trusted`, the trusted part of the response; it is None if the API did not respond this
    time. The status may show `known`, the newest response. If the API has been silent for too long, `known` is None and
    `problem` gives the reason for the silence. In that case, `last` is the newest response if its shares of requests
    within the objectives are still recent enough to show. `retry_in` is the pause in seconds before the next call if
    the API did not respond.
    """

    trusted: PoolObservations | None
    known: PoolObservations | None
    problem: str | None = None
    last: LastHeard | None = None
    retry_in: float = 0.0


class StateExchange:
    """Sends one pool's states to the control API. It remembers the newest response, and the time since which the API
    has not responded. Unix times come from `clock`.
    """

    def __init__(self, pool: PoolKey, control_plane: ControlPlane, pace: Pace, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._control_plane = control_plane
        self._pace = pace
        self._clock = clock
        self._newest: LastHeard | None = None
        self._judged_by: SloFacts | None = None
        """The SLO targets that were in force at the newest response."""
        self._answered_since: float | None = None
        self._silent_since: float | None = None
        self._silences = 0

    async def exchange(self, state: PoolState) -> Answer:
        """Send the observed state; return the result, which contains the routers' observations if the API responded."""
        outcome = await self._control_plane.put_state(self._pool, state)
        if not isinstance(outcome, Taken):
            return self._silence(outcome, state)
        self._newest, self._judged_by = LastHeard(observations=outcome.answer, at=self._clock()), _targets(state)
        self._silent_since, self._silences = None, 0
        return Answer(trusted=self._believed(outcome.answer, state), known=outcome.answer)

    def _believed(self, observations: PoolObservations, state: PoolState) -> PoolObservations:
        """Return the trusted part of the observations.

        Right after an outage of the control API or a start of the operator, routers may not have reported to the API
        yet. Therefore a router that is missing in the observations is not assumed to be gone.
        """
        now = self._clock()
        if self._answered_since is None or self._answered_since > now:
            self._answered_since = now
        if now - self._answered_since >= self._pace.router_silence:
            return observations
        observations = without_hasty_idleness(observations)
        return without_hasty_silence(observations, {item.id for item in state.instances if item.state is InstanceState.DRAINING})

    def _silence(self, outcome: Refused | Later, state: PoolState) -> Answer:
        """Return the result for a call without a response, from which no action follows. For `pace.silence` seconds,
        the status still shows the last response. For `pace.recent_figures` seconds, it still shows the shares of
        requests in that response, unless other SLO targets have come into force.
        """
        now, newest = self._clock(), self._newest
        self._answered_since = None
        if self._silent_since is None or self._silent_since > now:
            self._silent_since = now
            logger.warning("control plane silent", extra={"pool": str(self._pool), "error": outcome.problem})
        asked_for = outcome.retry_after_seconds if isinstance(outcome, Later) else None
        pause = min(self._pace.settled, asked_for or self._own_pause())
        if now - self._silent_since < self._pace.silence:
            return Answer(trusted=None, known=None if newest is None else newest.observations, retry_in=pause)
        is_recent = newest is not None and self._judged_by == _targets(state) and 0 <= now - newest.at < self._pace.recent_figures
        return Answer(trusted=None, known=None, problem=outcome.problem, last=newest if is_recent else None, retry_in=pause)

    def _own_pause(self) -> float:
        """Return the pause in seconds after a failed call for this pool, if the API may still respond for other pools.
        The pause doubles with each failure in a row.
        """
        self._silences += 1
        return self._pace.busy * 2.0 ** min(self._silences - 1, 10)


def _targets(state: PoolState) -> SloFacts | None:
    return None if state.schedules is None else state.schedules.slo
