"""Settings of the control API."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_api.settings import from_environment, parse_bootstrap_tokens


def test_settings_never_show_a_secret_in_an_error() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_bootstrap_tokens("admin:me:short")
    assert "short" not in str(caught.value)
    with pytest.raises(InvalidInput) as caught:
        from_environment({"FAIRLEAD_DATABASE_URL": "postgres://me:topsecret@host/db"})
    assert "topsecret" not in str(caught.value)
    tokens = parse_bootstrap_tokens("admin:me:0123456789abcdef, system-router:router:0123456789:abcdef")
    assert [(token.role, token.name, token.secret) for token in tokens] == [
        ("admin", "me", "0123456789abcdef"),
        ("system-router", "router", "0123456789:abcdef"),
    ]
