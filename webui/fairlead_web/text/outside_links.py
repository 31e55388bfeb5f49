"""Links to other tools (Grafana, traces, logs): URL patterns whose placeholders a page fills with the objects that it
shows.

    https://grafana.example.com/d/fairlead?var-pool={pool}&from={from}&to={to}

A link is shown if the page knows the values of all placeholders in its pattern, so a pattern with `{instance}` is for
the pages of instances. Values are escaped, and placeholders are allowed in the path, query or fragment only, so that a
value cannot change the host. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from urllib.parse import quote, urlsplit

from fairlead.errors import InvalidInput
from fairlead_process.environment import variable
from fairlead_process.kinds import Parsed
from fairlead_web.text.time_ranges import stamp

PLACES = ("namespace", "pool", "instance", "session", "request", "decision", "trace", "from", "to", "fromTime", "toTime")
"""Permitted placeholders of a URL pattern. `pool` is the name within its namespace; `from` and `to` are milliseconds
since 1970, as Grafana counts; `fromTime` and `toTime` are times such as 2026-11-30T08:00:00Z.
"""
_PLACE = re.compile(r"\{([^{}]*)\}")
_WANTED = f"write an address such as https://grafana.example.com/d/x?var-pool={{pool}}; it may have {', '.join(PLACES)} in braces"


def checked_pattern(text: str) -> str:
    """Return the URL pattern unchanged. Raises InvalidInput if it cannot be a link, or has an unknown placeholder."""
    strange = next((name for name in _PLACE.findall(text) if name not in PLACES), None)
    if strange is not None:
        raise InvalidInput("pattern", f"{{{strange}}}", f"write one of {', '.join(PLACES)} in the braces")
    rest = _PLACE.sub("", text)
    if set("{}") & set(rest):
        raise InvalidInput(
            "pattern", text, f"put each placeholder in one pair of braces; write %7B and %7D for braces in the address. {_WANTED}"
        )
    if not _leads_elsewhere(text) or not rest.isprintable() or " " in rest:
        raise InvalidInput("pattern", text, _WANTED)
    return text


def _leads_elsewhere(text: str) -> bool:
    """Return whether the text is an absolute URL with the scheme http or https, a host without placeholders, and no
    password.
    """
    try:
        parts = urlsplit(text)
        found = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return bool(found) and parts.scheme in {"http", "https"} and not set("{}@") & set(parts.netloc)


def _pattern(name: str, of: str, example: str) -> Mapping[str, object]:
    kind = Parsed(parser=checked_pattern, wanted=_WANTED, unit="URL with places in braces")
    return variable(
        name, kind, f"the address of {of} that pages of pools link to, such as `{example}`", "docs/monitoring.md", default_shown="none"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPatterns:
    """The URL patterns of the links to other tools; None = there is no link to that tool."""

    grafana: str | None = field(
        default=None, metadata=_pattern("FAIRLEAD_GRAFANA_LINK", "a dashboard", "https://grafana/d/x?var-pool={pool}&from={from}&to={to}")
    )
    traces: str | None = field(
        default=None,
        metadata=_pattern("FAIRLEAD_TRACES_LINK", "a search of traces", "https://jaeger/trace/{trace}"),
    )
    logs: str | None = field(
        default=None, metadata=_pattern("FAIRLEAD_LOGS_LINK", "a search of logs", "https://logs/?pod={instance}&start={fromTime}")
    )


NO_LINKS = LinkPatterns()


def links(patterns: LinkPatterns, pool: str, start: datetime, end: datetime, about: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """Return the text and address of each link whose placeholders this page can fill. `about` may contain an instance,
    a session, a request, a decision and a trace.
    """
    namespace, _, name = pool.partition("/")  # a page's address may name what is no pool
    known = {"namespace": namespace, "pool": name, **{place: value for place, value in about.items() if value}}
    known |= {"from": str(_millis(start)), "to": str(_millis(end)), "fromTime": stamp(start), "toTime": stamp(end)}
    found = [(one.name.capitalize(), getattr(patterns, one.name)) for one in fields(patterns)]
    return [(words, filled(pattern, known)) for words, pattern in found if pattern and known.keys() >= set(_PLACE.findall(pattern))]


def filled(pattern: str, known: Mapping[str, str]) -> str:
    """Return the URL pattern with its placeholders replaced by the values in `known`."""
    return _PLACE.sub(lambda place: quote(known[place[1]], safe=""), pattern)


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
