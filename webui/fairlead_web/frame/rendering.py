"""Renders contexts as HTML.

There is one Jinja environment, in which undefined names are errors, and one frozen dataclass for each template, whose
fields are exactly the template's variables.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape
from jinja2.ext import Extension
from markupsafe import Markup

from fairlead.amounts import amount
from fairlead.session_identities import name_of
from fairlead_client.resources.problems import Problem
from fairlead_web.drawing.move_steps import cache_words, seconds_won
from fairlead_web.frame.assets import Assets
from fairlead_web.frame.health import condition_level, health_of
from fairlead_web.text import addresses, formats
from fairlead_web.text.time_ranges import stamp

TEMPLATES = Path(__file__).parent.parent / "templates"
FRAME = ("layouts/page.html", "partials/_sidebar.html")
"""Templates of the frame around every page. Their blocks can be rendered separately, like the blocks of the page
itself.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The variables of one template. A subclass names the template and adds the variables as fields."""

    template: ClassVar[str]


class _Unindented(Extension):
    """Removes the indentation of templates, which saves a fifth of the bytes to send and to keep.

    A Jinja tag removes the newline after it. Therefore one space is kept after a tag, because it may be the only
    separator between two attributes or words.
    """

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return re.sub(r"(?<=[%#]\}\n) +", " ", re.sub(r"(?<![%#]\})\n +", "\n", source))


class Renderer:
    """Renders contexts. `base` is the path prefix of all links."""

    def __init__(self, assets: Assets, base: str, clock: Callable[[], datetime]) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Unindented],
        )
        self._clock = clock
        self._environment.filters.update(
            count=formats.count,
            amount=amount,
            compact=formats.compact,
            share=formats.share,
            seconds=formats.seconds,
            latency=formats.latency,
            benefit=formats.benefit,
            won=formats.won,
            net=seconds_won,
            cache_words=cache_words,
            rate=formats.rate,
            score=formats.score,
            span=formats.span,
            words=formats.words,
            deed=formats.deed,
            told=_told,
            clock=formats.clock,
            client_name=name_of,
            weekday=formats.weekday,
            stamp=stamp,
            segment=addresses.segment,
            time=self._time,
            plain=formats.plain,
            health=health_of,
            money=formats.money,
            percentile=formats.percentile,
            condition_level=condition_level,
        )
        self._environment.globals.update(
            asset=lambda name: base + assets.path(name),
            link=lambda path, **params: base + addresses.with_query(path, {name.rstrip("_"): value for name, value in params.items()}),
            pool_path=addresses.pool_path,
            instance_path=addresses.instance_path,
            schedule_path=addresses.schedule_path,
            session_path=addresses.session_path,
            tree_path=addresses.tree_path,
        )
        # A global rather than an import in each template, because a block rendered alone does not run
        # its template's imports.
        self._environment.globals["alone"] = False
        for name in ("parts", "charts"):
            self._environment.globals[name] = self._environment.get_template(f"partials/_{name}.html").module

    def render(self, context: Context, block: str | None = None) -> str:
        """Render the whole page, or only one of its blocks for a response that replaces a part of the page."""
        template = self._environment.get_template(context.template)
        values = {field.name: getattr(context, field.name) for field in fields(context)}
        values["alone"] = block is not None
        if block is None:
            return template.render(values)
        owner = self._owner(context, block)
        if owner is None:
            raise LookupError(f"{context.template} has no block {block!r}")
        return "".join(owner.blocks[block](owner.new_context(values)))

    def regions(self, context: Context, names: Iterable[str]) -> str:
        """Render the named regions, except regions that the page does not have. Each region is wrapped in the element
        by which the browser replaces it. Spaces around a region's element are removed, because they would accumulate
        with every replacement.
        """
        found = [(name, name.replace("-", "_")) for name in names]
        return "".join(
            f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{self.render(context, block).strip()}</hx-partial>'
            for name, block in found
            if self._owner(context, block) is not None
        )

    @property
    def filter_names(self) -> tuple[str, ...]:
        """The names of the filters that templates may use."""
        return tuple(self._environment.filters)

    @property
    def global_names(self) -> tuple[str, ...]:
        """The names, other than the fields of their context, that templates may use."""
        return tuple(self._environment.globals)

    def _owner(self, context: Context, block: str) -> Template | None:
        templates = map(self._environment.get_template, (context.template, *FRAME))
        return next((template for template in templates if block in template.blocks), None)

    def _time(self, moment: datetime | None) -> Markup:
        """Return a `<time>` element that shows how long ago the time was, with the UTC time as its title. Scripts
        rewrite it in the format that the reader chose.
        """
        if moment is None:
            return Markup("{}").format(formats.NONE)
        return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
            moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            formats.clock(moment),
            formats.ago(moment, self._clock()),
        )


def _told(problem: Problem) -> str:
    return formats.told(problem.detail, problem.remedy)
