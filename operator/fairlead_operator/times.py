"""Times as Kubernetes writes them. Pure."""

from datetime import UTC, datetime


def parse_time(text: str | None) -> float | None:
    """Convert RFC 3339 to Unix seconds; None for None, an invalid text, or an instant that UTC cannot show."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def format_time(seconds: float) -> str:
    """Convert Unix seconds to RFC 3339 with microseconds, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def format_second(seconds: float) -> str:
    """Convert Unix seconds to RFC 3339 in whole seconds, as in conditions and Events."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
