"""The parameters of policies: dataclasses whose fields are made by `fairlead.schemas.shapes`. The parameters have the
same names in a pool's spec.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from fairlead.schemas.reading import read
from fairlead.schemas.shapes import Shape, number, shape_of, text, truth, whole

P = TypeVar("P")


def parameter_shapes(parameters: type[Any]) -> dict[str, Shape]:
    """Return each parameter's name and the shape of its value, in order of declaration. If a parameter's default is
    None, its description says how the value is chosen.
    """
    return {item.name: shape_of(item) for item in fields(parameters)}


def read_parameters(parameters: type[P], given: Mapping[str, Any], policy: str) -> P:
    """Build the dataclass `parameters` from a mapping in a pool's spec. Raises InvalidInput naming
    `spec.routing.parameters.<name>` for unknown names, wrong types and values out of bounds.
    """
    return read(parameters, given, "spec.routing.parameters", named=attrgetter("name"), owner=f"policy {policy}")


DISCIPLINES = ("fifo", "longest_hit", "slack", "deadline")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueParameters:
    """Parameters that every policy accepts: how requests wait in the router, and how prefill times are predicted."""

    queue_discipline: str = text(
        "Order in which an instance's queued requests are sent. `fifo`: by arrival; `longest_hit`: most cached tokens first; "
        "`slack`: the request that must start soonest to meet the TTFT target first, requests that can no longer meet it "
        "last; `deadline`: so that most requests meet the target.",
        "fifo",
        enum=DISCIPLINES,
    )
    queue_age_bound_seconds: float = number(
        "With `longest_hit`, requests that have waited longer than this are sent first, oldest first, so that no request waits forever.",
        2.0,
        minimum=0.0,
    )
    calm_load: float = number(
        (
            "With `deadline`, late requests are sent while the pool's load is below this value. Load is the seconds of "
            "prefill that arrive per second and instance, plus the share of time that decodes need to meet the "
            "TPOT target; 1 is full."
        ),
        0.9,
        minimum=0.0,
        maximum=100.0,
    )
    late_load: float = number(
        "With `deadline`, late requests are also sent while the pool's mean wait is at most this part of the TTFT target.",
        0.06,
        minimum=0.0,
        maximum=100.0,
    )
    late_share: float = number(
        "With `deadline`, the share of prefill time that late requests get, however high the load.", 0.02, minimum=0.0, maximum=1.0
    )
    in_flight_seconds: float = number(
        (
            "Beyond spec.routing.prefillsInFlight, more requests are sent to an instance as long as its prefills "
            "in flight should finish within this time."
        ),
        0.0,
        minimum=0.0,
        maximum=60.0,
    )
    queue_limit: int = whole("Requests that may wait for one instance; beyond it a request is refused (429).", 1024, minimum=1)
    queue_timeout_seconds: float = number("Longest wait in the router before a request is refused (429).", 60.0, minimum=0.001)
    prefill_estimate: str = text(
        (
            "Source of predicted prefill times: `configured` uses the measured speed "
            "(engine.prefillTokensPerSecond until it is measured), `linear` and `bilinear` use a fit to the "
            "observed prefills, once there are enough."
        ),
        "configured",
        enum=("configured", "linear", "bilinear"),
    )
    estimate_min_samples: int = whole(
        "Prefills to observe before a fit is used; until then the configured speed is used.", 200, minimum=10, maximum=1_000_000
    )

    early_prefixes: bool = truth(
        "A prompt counts as cached on its instance as soon as it is sent there, not only from its first token on. So requests "
        "that wait behind it are predicted to find its prefix cached, and many sub-agents with one scaffold spread over instances.",
        False,
    )
    speculative_seconds: float = number(
        (
            "Seconds after a prefill for which the prompt's blocks count as held by its instance although KV "
            "events have not confirmed them; 0 = only confirmed blocks count."
        ),
        0.0,
        minimum=0.0,
        maximum=60.0,
    )

    @property
    def least_gain(self) -> float:
        """Minimum TTFT gain in seconds: a session leaves a home that could take its request only if it gains at least
        this much. -inf = the session moves even if it loses time.
        """
        return -inf

    @property
    def sends_unfinished_first(self) -> bool:
        """Whether turns of tasks in progress are sent before first turns of tasks when some requests must miss their
        TTFT target.
        """
        return False

    @property
    def beginning_share(self) -> float:
        """Late turns of tasks in progress take time from first turns of tasks. First turns get back at least this share
        (0-1) of that time.
        """
        return 0.1

    @property
    def keeps_contexts(self) -> bool:
        """Whether the policy adds a cost for the cached contexts that a request would evict."""
        return False

    @property
    def expected_seconds(self) -> float:
        """Seconds after its prefill for which a prompt's blocks are assumed to be cached although no KV event has
        reported them.
        """
        return self.speculative_seconds

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about settings that have no effect, one line each; empty for most policies."""
        return ()


LEAST_GAIN_SECONDS = 0.05
"""The default of `least_gain_seconds`, the TTFT gain needed to move a session (docs/experiments.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeParameters(QueueParameters):
    """Parameters of the policies that may move a session from an instance that could still take its request."""

    least_gain_seconds: float = number(
        "A session leaves a home that takes requests only if its first token is predicted to come at least this much sooner elsewhere; "
        "ties and smaller gains move no session. A negative value allows the first token to come this much later.",
        LEAST_GAIN_SECONDS,
        minimum=-3600.0,
        maximum=3600.0,
    )
    unfinished_first: bool = truth(
        (
            "With `deadline`, if not all requests can be in time, turns that continue a task in progress are sent before first turns of "
            "tasks, and early rejection refuses only first turns. A task is a session of which a turn was served, "
            "together with the sub-agents that name it as their parent."
        ),
        False,
    )
    new_task_share: float = number(
        "With `unfinished_first`, late turns of tasks in progress take time from first turns; first turns get back at least this share of it.",
        0.1,
        minimum=0.01,
        maximum=1.0,
    )

    @property
    def least_gain(self) -> float:
        return self.least_gain_seconds

    @property
    def sends_unfinished_first(self) -> bool:
        return self.unfinished_first

    @property
    def beginning_share(self) -> float:
        return self.new_task_share

    @property
    def notes(self) -> tuple[str, ...]:
        if self.unfinished_first and self.queue_discipline != "deadline":
            return (f"unfinished_first has no effect on a queue with the discipline {self.queue_discipline}; only early rejection uses it",)
        return ()
