"""Contexts of sessions, migrations, decisions, rejections and SLO pages."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from fairlead_client.resources.decisions import CandidateTerm, RoutingDecision
from fairlead_client.resources.moves import Migration, ReRoute
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.rejections import RejectionGroup, RejectionReport
from fairlead_client.resources.sessions import SessionDetail, SessionSummary
from fairlead_client.resources.slo import SloVersion
from fairlead_web.charts import HolderBand, Sparkline, StackedTimeline
from fairlead_web.rendering import Context
from fairlead_web.shells import Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPage(Context):
    template: ClassVar[str] = "pages/sessions.html"
    shell: Shell
    listing: Listing[SessionSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(Context):
    template: ClassVar[str] = "pages/session.html"
    shell: Shell
    detail: SessionDetail
    band: HolderBand
    migrations: list[Migration] | None
    reroutes: list[ReRoute] | None
    decisions: list[RoutingDecision] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """Moves from one instance to another: `heat` 0-9 for shading, `url` the list of exactly these."""

    count: int
    heat: int
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowMatrix:
    """Rows are sources, columns targets, both sorted by how many moves they have. `hidden` moves are of instances beyond the ones shown."""

    targets: list[str]
    rows: list[tuple[str, list[MatrixCell | None], int]]
    column_totals: list[int]
    total: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveWords:
    """How a sort of move is called and where it is listed: `one` and `many` in a sentence, `topic` of the live stream and name of the path."""

    one: str
    many: str
    title: str
    topic: str
    about: str
    none: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesPage(Context):
    template: ClassVar[str] = "pages/moves.html"
    shell: Shell
    words: MoveWords
    triggers: list[str]
    outcomes: list[str]
    listing: Listing[Migration] | Listing[ReRoute]
    timeline: StackedTimeline | None
    matrix: FlowMatrix | None
    by_trigger: list[tuple[str, int]]
    paid_off: tuple[int, int]
    counted_from: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One line of the comparison of what was promised and what happened. `length` is its share of the longest, 0-100."""

    words: str
    seconds: float | None
    length: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePage(Context):
    template: ClassVar[str] = "pages/move.html"
    shell: Shell
    words: MoveWords
    move: Migration | ReRoute
    phases: list[Phase]
    decision: RoutingDecision | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsPage(Context):
    template: ClassVar[str] = "pages/decisions.html"
    shell: Shell
    reasons: list[str]
    listing: Listing[RoutingDecision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate with its place: `role` is chosen, runner-up or empty; `hit_length`, `ttft_length` are bar lengths 0-100."""

    term: CandidateTerm
    role: str
    hit_length: float
    ttft_length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRow:
    """One term over all candidates, in their order. `role` is its place in the choice: what decided, a part of the total, or empty; `best` are the
    columns with the best value."""

    words: str
    unit: str
    better: str
    role: str
    values: list[str | None]
    best: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPage(Context):
    template: ClassVar[str] = "pages/decision.html"
    shell: Shell
    decision: RoutingDecision
    candidates: list[Candidate]
    terms: list[TermRow]
    limits: list[tuple[str, str]]
    predicted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionsPage(Context):
    template: ClassVar[str] = "pages/rejections.html"
    shell: Shell
    report: RejectionReport
    groups: list[tuple[RejectionGroup, str, Sparkline]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SloPage(Context):
    template: ClassVar[str] = "pages/slo.html"
    shell: Shell
    versions: list[SloVersion]
