"""`/trees/…`: a tree of sessions over time; `…/tasks`: the tasks of a pool, and its think times (how long sessions wait
between turns).
"""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from starlette.responses import Response

from fairlead.session_trees import Evidence, Link
from fairlead_client.resources.trees import SessionTree, TaskFigures, ThinkTimes, TreeTurn
from fairlead_web.drawing.timelines import Timeline, hit_share, timeline, tree_in_words
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text.addresses import pool_path, session_path

TURNS = 50
"""Maximum number of turns that are listed; the newest are listed."""
ORIGINS = {
    (Link.SUB_AGENT, Evidence.SENT): "sub-agent, by its client",
    (Link.FORK, Evidence.SENT): "fork, by its client",
    (Link.FORK, Evidence.PREFIX): "fork, by its prompt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """A turn in the list; `hits` is the cached share of its prompt."""

    turn: TreeTurn
    hits: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePage(Context):
    template: ClassVar[str] = "pages/tree.html"
    shell: Shell
    tree: SessionTree
    line: Timeline
    story: str
    refusals: int
    hits: float | None
    moves: int
    origins: dict[str, str]
    """For each session, the evidence from which its parent was determined."""
    rows: list[TurnRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksPage(Context):
    template: ClassVar[str] = "pages/tasks.html"
    shell: Shell
    tasks: list[TaskFigures]
    thinking: ThinkTimes | None


async def show(visit: Visit) -> Response:
    key, session = visit.pool_key(), visit.request.path_params["session"]
    tree = await visit.api.tree(key, session)
    pool, sums = str(key), Counter[str]()
    for one in tree.sessions:
        sums.update(refusals=one.refusals, moves=one.moves, prompt=one.prompt_tokens, cached=one.cached_tokens)
    shell = await visit.shell(
        f"Tree of {tree.root}",
        "pools",
        crumbs=crumbs_below(
            pool,
            Crumb(words="Sessions", path=f"{pool_path(pool)}/sessions"),
            Crumb(words=session, path=session_path(pool, session)),
            Crumb(words="Tree"),
        ),
        pool=pool,
        tab="sessions",
        live="migrations,reroutes,decisions",
    )
    return visit.page(
        TreePage(
            shell=shell,
            tree=tree,
            line=timeline(tree),
            story=tree_in_words(tree),
            refusals=sums["refusals"],
            hits=sums["cached"] / sums["prompt"] if sums["prompt"] else None,
            moves=sums["moves"],
            origins={
                one.session: ORIGINS.get((one.link, one.evidence), "root") if one.link and one.evidence else "root" for one in tree.sessions
            },
            rows=[TurnRow(turn=turn, hits=hit_share(turn)) for turn in reversed(tree.turns[-TURNS:])],
        )
    )


async def tasks(visit: Visit) -> Response:
    key = visit.pool_key()
    found = await visit.api.tasks(key)
    thinking = await visit.attempt("think times", visit.api.think_times(key), ["thinking"])
    crumbs = crumbs_below(str(key), Crumb(words="Sessions", path=f"{pool_path(str(key))}/sessions"), Crumb(words="Tasks"))
    shell = await visit.shell(f"Tasks of {key}", "pools", crumbs=crumbs, pool=str(key), tab="sessions", live="migrations")
    return visit.page(TasksPage(shell=shell, tasks=found.tasks, thinking=thinking))


ROUTES = Routes(pages={"/trees/{namespace}/{name}/{session:path}": show, f"{POOL}/tasks": tasks})
