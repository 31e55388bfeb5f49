"""Settings of the control API."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_api.settings import parse_bootstrap_tokens, read_settings


def test_settings_never_show_a_secret_in_an_error() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_bootstrap_tokens("admin:me:short")
    assert "short" not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        read_settings({"FAIRLEAD_DATABASE_URL": "mysql://me:topsecret@host/db"})
    assert "topsecret" not in str(caught.value)
    tokens = parse_bootstrap_tokens("admin:me:0123456789abcdef, system-router:router:0123456789:abcdef")
    assert [(token.role, token.name, token.secret) for token in tokens] == [
        ("admin", "me", "0123456789abcdef"),
        ("system-router", "router", "0123456789:abcdef"),
    ]


def test_the_schemes_that_libpq_knows_are_taken_too() -> None:
    """Secrets of Postgres operators have these."""
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        settings = read_settings({"FAIRLEAD_DATABASE_URL": f"{scheme}://me:pw@host:5432/db"})
        assert settings.database_url == "postgresql+psycopg://me:pw@host:5432/db"
