"""Session trees: the relations between sessions, their turns over time, the cost of tasks, and the waits of
sessions.
"""

from dataclasses import dataclass
from datetime import datetime

from fairlead.reports.decisions import RequestOutcome
from fairlead.reports.rejections import RejectionReason
from fairlead.session_trees import Evidence, Link, TaskVerdict
from fairlead.tables import DEFAULT_CLASS


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSums:
    """The totals of some turns, as exact sums. `queued_seconds` is the time from the turns' arrivals until they were
    sent to an engine, `model_seconds` the time from then to their ends. Prompt tokens count if an engine received the
    prompt; `cached_tokens` of them were not computed again.
    """

    turns: int
    refusals: int
    failures: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued_seconds: float
    model_seconds: float

    @property
    def hit_share(self) -> float | None:
        """The share of the prompts' tokens that was cached; None without such tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures(TurnSums):
    """A task: the turns that a client names as one task (`named`) or, for a tree without a named task, all turns of the
    tree. In the second case `task` is the name of the tree's root.

    `tool_seconds` is the time in which the task's sessions had no request in flight, between their turns: tools ran, or
    somebody thought. It is None if not all turns are stored any more. `moves` are session migrations of its sessions.
    """

    pool: str
    task: str
    named: bool
    root: str
    """The root of the tree; if the task has several trees, the root of one of them."""
    sessions: int
    first_at: datetime
    ended_at: datetime
    wall_seconds: float
    moves: int
    tool_seconds: float | None = None
    priority_class: str = DEFAULT_CLASS
    """The priority class of the task's first turn."""
    verdict: TaskVerdict | None = None
    """The result of the task, judged by the target of its class that was in force when its last turn ended; None
    without such a target.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskList:
    """The tasks with the newest turns, newest first."""

    tasks: list[TaskFigures]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSession(TurnSums):
    """A session of a tree. `evidence` says whether the client named the session's parent or its prompts show it; a
    session without a parent is the root.
    """

    session: str
    parent: str | None
    link: Link | None
    evidence: Evidence | None
    depth: int
    """Number of parents up to the root."""
    first_at: datetime
    ended_at: datetime
    instance: str | None
    """The instance to which the session is bound now; None if it is not bound."""
    moves: int
    compactions: int
    """Number of stored turns that compacted the conversation."""
    tool_seconds: float | None
    """Time between the session's turns, in seconds; see `TaskFigures`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTurn:
    """A request of a session, as recorded by its router. `gap_seconds` is the time between the end of all earlier
    answers of the session and this request; `tool` is the tool whose result the request contains. `queued_seconds` is
    the time until the request was sent to `instance`, None if it was not sent, and `ttft_seconds` the time from then
    until its first token.
    """

    session: str
    at: datetime
    ended_at: datetime
    task: str | None
    tool: str | None
    gap_seconds: float | None
    compacted: Evidence | None
    outcome: RequestOutcome | None
    rejection: RejectionReason | None
    instance: str | None
    rank: int | None
    queued_seconds: float | None
    ttft_seconds: float | None
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int | None
    decision: str | None
    moved_from: str | None
    """The instance of the session's previous turn, if it was another instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTree:
    """A tree: its sessions, each below its parent, and their turns in the order of arrival.

    `complete` says whether the response has all turns. Old turns are deleted (`FAIRLEAD_KEEP_TRAFFIC_DAYS`), and of
    very many turns only the newest are shown; sums count all of them. Up to 10,000 sessions are counted
    (`sessions_in_all`). `sessions` is empty if no request of the root is recorded. `key` is the name of the gateway key
    to which the sessions belong (its id if the key is not known), None without a key.
    """

    pool: str
    root: str
    sessions: list[TreeSession]
    sessions_in_all: int
    tasks: list[TaskFigures]
    turns: list[TreeTurn]
    complete: bool
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkTime:
    """Measured quantiles of the time between the end of a session's response and the session's next turn. They are over
    all such times with one tenant and one tool.

    `tenant` is the id of a key, "" for clients without one. `tool` is the tool whose result was in the next turn. It is
    "" if there was no such tool: a person thought, or the client does not show its tools. If there are too many tools,
    one row adds up the least frequent ones: `other_tools` counts them, and `tool` is "".
    """

    tenant: str
    tool: str
    turns: int
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    first_at: datetime
    last_at: datetime
    other_tools: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkTimes:
    """Think times of a pool's newest turns; the rows with the most turns come first. `since` is the arrival time of the
    oldest of these turns, None without turns.
    """

    pool: str
    since: datetime | None
    times: list[ThinkTime]
