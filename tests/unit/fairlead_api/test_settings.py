"""Settings of the control API."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from fairlead.errors import InvalidInput
from fairlead_api.infra.connections import libpq_url
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
    """Secrets of Postgres operators have URLs with these schemes."""
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        settings = read_settings({"FAIRLEAD_DATABASE_URL": f"{scheme}://me:pw@host:5432/db"})
        assert settings.database_url == "postgresql+psycopg://me:pw@host:5432/db"


@pytest.mark.parametrize("hosts", ["a:5432,b:6432", "a,b", "a,b:6432", "[fd00::5]:5432", "%2Fvar%2Frun%2Fpostgresql"])
def test_hosts_as_libpq_writes_them_stay_as_they_are(hosts: str) -> None:
    text = f"postgresql://me:p%40w@{hosts}/db?target_session_attrs=read-write"
    url = read_settings({"FAIRLEAD_DATABASE_URL": text}).database_url
    assert conninfo_to_dict(libpq_url(url)) == conninfo_to_dict(text)


@pytest.mark.parametrize(
    ("days", "field", "finer"),
    [
        ({"ROLLUPS_10S": 1}, "FAIRLEAD_KEEP_ROLLUPS_10S_DAYS", "FAIRLEAD_KEEP_LOAD_SAMPLES_DAYS"),
        ({"LOAD_SAMPLES": 8}, "FAIRLEAD_KEEP_ROLLUPS_10S_DAYS", "FAIRLEAD_KEEP_LOAD_SAMPLES_DAYS"),
        ({"ROLLUPS_1M": 6}, "FAIRLEAD_KEEP_ROLLUPS_1M_DAYS", "FAIRLEAD_KEEP_ROLLUPS_10S_DAYS"),
    ],
)
def test_rows_that_are_made_of_others_are_not_kept_for_less_long(days: dict[str, int], field: str, finer: str) -> None:
    """A late report would make them again from the rows that are left."""
    url = {"FAIRLEAD_DATABASE_URL": "postgresql://me@host/db"}
    with pytest.raises(InvalidInput, match=finer) as caught:
        read_settings({**url, **{f"FAIRLEAD_KEEP_{name}_DAYS": str(number) for name, number in days.items()}})
    assert caught.value.field == field
    for same in ("1", "36500"):
        read_settings({**url, **{f"FAIRLEAD_KEEP_{name}_DAYS": same for name in ("LOAD_SAMPLES", "ROLLUPS_10S", "ROLLUPS_1M")}})
