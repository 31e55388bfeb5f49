"""The host has all settings of the control API, and two of its own."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_host.settings import read_settings

GOOD = {"FAIRLEAD_DATABASE_URL": "postgresql+psycopg://app@db/fairlead"}


def test_the_web_ui_is_served_unless_told_otherwise_and_logs_are_as_the_api_is_told() -> None:
    assert read_settings(GOOD).web
    told = read_settings({**GOOD, "FAIRLEAD_WEB": "0", "FAIRLEAD_PUBLIC_URL": "https://ops/infer/", "FAIRLEAD_LOG_FORMAT": "json"})
    assert (told.web, told.public_url, told.logs.format) == (False, "https://ops/infer", "json")


@pytest.mark.parametrize(("name", "value"), [("FAIRLEAD_WEB", "no"), ("FAIRLEAD_PUBLIC_URL", "ops"), ("FAIRLEAD_AUTH_MODE", "open")])
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name}: '{value}' cannot be used"):
        read_settings({**GOOD, name: value})


def test_settings_of_the_api_that_do_not_fit_together_are_refused_here_too() -> None:
    with pytest.raises(InvalidInput, match=r"^FAIRLEAD_AUTH_MODE: 'bootstrap' cannot be used; write oidc"):
        read_settings({**GOOD, "FAIRLEAD_OIDC_ISSUER": "https://id.example.com"})
