"""`…/scaling`: the scaling decisions for each role of a pool, their reasons, and whether they were followed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from starlette.responses import Response

from fairlead.instances import Role
from fairlead.scaling.recommendations import Controller, Verdict
from fairlead_client.resources.pages import Page as Listing
from fairlead_client.resources.scaling import ScalingDecisionItem
from fairlead_web.frame.rendering import Context
from fairlead_web.frame.routes import POOL, Routes
from fairlead_web.frame.shells import Crumb, Shell, crumbs_below
from fairlead_web.frame.visits import Visit
from fairlead_web.text.yaml_text import yaml_text

CHOICES: Mapping[str, Sequence[str]] = {"role": tuple(Role), "verdict": tuple(Verdict), "controller": tuple(Controller)}
"""The filters, each with the values to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """A scaling decision, and its basis as YAML: the role's need, the imbalance, the signals."""

    decision: ScalingDecisionItem
    grounds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPage(Context):
    template: ClassVar[str] = "pages/scaling.html"
    shell: Shell
    choices: Mapping[str, Sequence[str]]
    listing: Listing[ScalingDecisionItem]
    rows: list[DecisionRow]


async def index(visit: Visit) -> Response:
    pool = str(visit.pool_key())
    visit = visit.since([(await visit.api.pool(visit.pool_key(), instances=False)).pool.created_at])
    listing = await visit.api.scaling_decisions(visit.filters(*CHOICES, ranged=True) | {"pool": pool})
    shell = await visit.shell(
        f"Scaling of {pool}", "pools", crumbs=crumbs_below(pool, Crumb(words="Scaling")), pool=pool, tab="scaling", ranged=True
    )
    return visit.page(ScalingPage(shell=shell, choices=CHOICES, listing=listing, rows=rows(listing.items)))


def rows(decisions: Sequence[ScalingDecisionItem]) -> list[DecisionRow]:
    """Return a row for each decision. Values that were not measured are left out of the YAML."""
    found = []
    for one in decisions:
        grounds = {"need": one.need, "imbalance": one.imbalance, "signals": list(one.signals), "demand": one.demand}
        known = {name: value for name, value in msgspec.to_builtins(grounds).items() if value}
        found.append(DecisionRow(decision=one, grounds=yaml_text(known) if known else ""))
    return found


ROUTES = Routes(pages={f"{POOL}/scaling": index})
