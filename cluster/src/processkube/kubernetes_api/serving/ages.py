"""Formats ages in the short form of `kubectl get`."""

from __future__ import annotations

from datetime import datetime

from processkube.kubernetes_api.objects.objects import parse_timestamp


def duration_text(seconds: float) -> str:
    """Return a duration as a short text, such as 42s, 3m5s, 8m, 2h13m, 5h, 3d4h or 12d."""
    total = int(seconds)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y"


def age_since(time: str | None, now: datetime) -> str:
    if not time:
        return "<unknown>"
    try:
        return duration_text((now - parse_timestamp(time)).total_seconds())
    except ValueError:
        return "<invalid>"
