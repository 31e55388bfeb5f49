"""Settings of the control API."""

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, make_url

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


@pytest.mark.parametrize(
    ("hosts", "host", "port"),
    [
        ("a:5432,b:6432", "a,b", "5432,6432"),
        ("a,b", "a,b", None),
        ("a,b:6432", "a,b", "5432,6432"),
    ],
)
def test_several_hosts_as_libpq_writes_them_mean_the_same_to_both_that_read_the_url(hosts: str, host: str, port: str | None) -> None:
    url = read_settings({"FAIRLEAD_DATABASE_URL": f"postgresql://me:p%40w@{hosts}/db?target_session_attrs=read-write"}).database_url
    wanted = {"host": host, "user": "me", "password": "p@w", "dbname": "db", "target_session_attrs": "read-write"}
    wanted |= {} if port is None else {"port": port}
    assert conninfo_to_dict(url.replace("+psycopg", "", 1)) == wanted
    _, given = create_engine(url).dialect.create_connect_args(make_url(url))
    assert {name: str(value) for name, value in given.items() if name in wanted} == wanted


@pytest.mark.parametrize(
    ("days", "field", "finer"),
    [
        ({"ROLLUPS_10S": 1}, "FAIRLEAD_KEEP_ROLLUPS_10S_DAYS", "FAIRLEAD_KEEP_LOAD_SAMPLES_DAYS"),
        ({"LOAD_SAMPLES": 8}, "FAIRLEAD_KEEP_ROLLUPS_10S_DAYS", "FAIRLEAD_KEEP_LOAD_SAMPLES_DAYS"),
        ({"ROLLUPS_1M": 6}, "FAIRLEAD_KEEP_ROLLUPS_1M_DAYS", "FAIRLEAD_KEEP_ROLLUPS_10S_DAYS"),
    ],
)
def test_rows_that_are_made_of_others_are_not_kept_for_less_long(days: dict[str, int], field: str, finer: str) -> None:
    """A late report would make them anew from what is left of those."""
    url = {"FAIRLEAD_DATABASE_URL": "postgresql://me@host/db"}
    with pytest.raises(InvalidInput, match=finer) as caught:
        read_settings({**url, **{f"FAIRLEAD_KEEP_{name}_DAYS": str(number) for name, number in days.items()}})
    assert caught.value.field == field
    for same in ("1", "36500"):
        read_settings({**url, **{f"FAIRLEAD_KEEP_{name}_DAYS": same for name in ("LOAD_SAMPLES", "ROLLUPS_10S", "ROLLUPS_1M")}})
