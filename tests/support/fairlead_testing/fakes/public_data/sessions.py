"""Sessions of the made-up pools, and their former homes."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from fairlead.reports.bindings import BindingReason
from fairlead_client.resources.instances import HeldSession, SessionsHeld
from fairlead_client.resources.sessions import BindingHistoryItem, SessionSummary
from fairlead_testing.fakes.public_data.loads import CHAT, CODE, HOSTILE, INSTANCES, name_suffix, noise

SESSIONS = 140


def sessions(now: datetime) -> list[SessionSummary]:
    found = []
    for number in range(SESSIONS):
        pool = CHAT if number % 4 else CODE
        names = INSTANCES[pool]
        at = now - timedelta(seconds=17 * number + 3)
        found.append(
            SessionSummary(
                pool=pool,
                session=HOSTILE if number == 1 else f"conversation-{number:04d}-{name_suffix(str(number))}",
                instance=None if number == 90 else names[int(noise("home", number) * min(6, len(names)))],
                version=1 + number % 3,
                reason=(BindingReason.COLD, BindingReason.HOT_MIGRATION, BindingReason.DRAIN)[number % 3],
                bound_at=at - timedelta(minutes=number % 9),
                last_seen_at=at,
                migrations=number % 3,
                context_tokens=900 + int(noise("context", number) * 90000),
                shared_at=at if number == 90 else None,
            )
        )
    return found


def held(mine: Sequence[SessionSummary]) -> SessionsHeld:
    whole = sum(one.context_tokens for one in mine)
    ranked = sorted(mine, key=lambda one: -one.context_tokens)
    return SessionsHeld(
        counted=len(mine),
        complete=True,
        context_tokens=whole,
        top=[
            HeldSession(
                session=one.session,
                context_tokens=one.context_tokens,
                share=one.context_tokens / whole,
                bound_at=one.bound_at,
                last_seen_at=one.last_seen_at,
                reason=one.reason,
                migrations=one.migrations,
            )
            for one in ranked[:10]
        ],
    )


def history(session: SessionSummary) -> list[BindingHistoryItem]:
    names = INSTANCES[session.pool]
    home = session.instance or names[0]
    path = [names[(names.index(home) + step) % len(names)] for step in range(session.version - 1, -1, -1)]
    found = []
    for version, name in enumerate(path, start=1):
        bound = session.bound_at - timedelta(minutes=11 * (session.version - version))
        last = version == session.version
        found.append(
            BindingHistoryItem(
                instance=name,
                version=version,
                reason=BindingReason.COLD
                if version == 1
                else BindingReason.HOTSPOT
                if session.reason is BindingReason.COLD
                else session.reason,
                bound_at=bound,
                released_at=None if last else bound + timedelta(minutes=11),
                router=f"router-{version % 2}",
                migration=None if version == 1 else "m-0002",
            )
        )
    return found
