"""No part of a secret appears in an error about a setting, whatever else is wrong with the setting's value."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead_api.settings import DatabaseSettings, Settings
from fairlead_host.settings import HostSettings
from fairlead_operator.settings import OperatorSettings
from fairlead_process.environment import read, variables
from fairlead_process.kinds import Address, Addresses
from fairlead_router.settings import RouterSettings
from fairlead_testing.examples import examples
from fairlead_web.frame.settings import AloneSettings

SECRET = "S3cretPassw0rd"
ALL: tuple[type[Any], ...] = (Settings, DatabaseSettings, HostSettings, OperatorSettings, RouterSettings, AloneSettings)
ADDRESSES = {"FAIRLEAD_OIDC_ISSUER"}


def holds_a_secret(name: str, kind: object) -> bool:
    return getattr(kind, "secret", False) or isinstance(kind, Address | Addresses) or name in ADDRESSES


PLACES = sorted({(one.__name__, found.name) for one in ALL for found, _ in variables(one) if holds_a_secret(found.name, found.kind)})
PIECES = [
    SECRET, "u", "admin", ":", "@", "//", "/", "://", "http", "ftp", "https", "postgresql", "jdbc:postgresql", "mysql", "?password=", "&", "#", "%",
    "%zz", " ", ",", "host=", "password=", "host", "5432", "[", "]", "system-router", "fd00::5", "é",
]  # fmt: skip


def message(settings: type[Any], environment: Mapping[str, str]) -> str:
    try:
        read(settings, environment)
    except InvalidInput as problem:
        return f"{problem} {problem.told} {problem.value} {problem.remedy} {problem!r}"
    return ""


@pytest.mark.parametrize(("owner", "name"), PLACES)
@given(pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=9))
@examples(200)
def test_no_part_of_a_secret_appears_in_an_error(owner: str, name: str, pieces: list[str]) -> None:
    settings = next(one for one in ALL if one.__name__ == owner)
    kind = next(found.kind for found, _ in variables(settings) if found.name == name)
    text = "".join(pieces)
    if not kind.secret and not text.rpartition(SECRET)[0].count("?"):
        text += "@host"  # of an address, credentials and parameters are secret
    assert SECRET not in message(settings, {name: text})


def test_a_refused_address_still_says_which_one_it_is() -> None:
    said = message(AloneSettings, {"FAIRLEAD_API_URL": f"ftp://u:{SECRET}@api:8080/x?token={SECRET}"})
    assert said.startswith("FAIRLEAD_API_URL: '…@api:8080/x?…' cannot be used; write an address")


@pytest.mark.parametrize("keys", [SECRET, f"{SECRET} {SECRET}\n", f"{SECRET}é", f"{SECRET}\x00"])
def test_a_file_of_keys_that_cannot_be_used_shows_none(keys: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(keys)
    said = message(RouterSettings, {**_ENOUGH, "FAIRLEAD_SPOOL_DIR": str(tmp_path), "FAIRLEAD_GATEWAY_KEYS_FILE": str(tmp_path / "keys")})
    assert said
    assert SECRET not in said


_ENOUGH = {"FAIRLEAD_API_URL": "http://127.0.0.1:1", "FAIRLEAD_API_TOKEN": "t", "FAIRLEAD_ROUTER_ID": "r"}
