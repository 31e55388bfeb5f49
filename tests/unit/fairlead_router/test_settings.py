"""Settings from the environment."""

from pathlib import Path

import pytest

from fairlead.errors import InvalidInput
from fairlead_router.settings import read_settings


def _environment(tmp_path: Path, **changes: str) -> dict[str, str]:
    return {
        "FAIRLEAD_API_URL": "http://127.0.0.1:8080/",
        "FAIRLEAD_API_TOKEN": "t",
        "FAIRLEAD_ROUTER_ID": "router-0",
        "FAIRLEAD_SPOOL_DIR": str(tmp_path / "spool"),
        **changes,
    }


def test_a_complete_environment_is_enough_and_makes_the_spool_directory(tmp_path: Path) -> None:
    settings = read_settings(_environment(tmp_path))
    assert settings.api_url == "http://127.0.0.1:8080"
    assert settings.max_body_bytes == 8 * 1024 * 1024
    assert settings.spool_dir.is_dir()


@pytest.mark.parametrize("name", ["FAIRLEAD_API_URL", "FAIRLEAD_API_TOKEN", "FAIRLEAD_ROUTER_ID", "FAIRLEAD_SPOOL_DIR"])
def test_a_missing_variable_is_named(tmp_path: Path, name: str) -> None:
    environment = _environment(tmp_path)
    del environment[name]
    with pytest.raises(InvalidInput, match=f"^{name}: "):
        read_settings(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAIRLEAD_API_URL", "127.0.0.1:8080"),
        ("FAIRLEAD_MAX_BODY_BYTES", "8MiB"),
        ("FAIRLEAD_MAX_BODY_BYTES", "3"),
        ("FAIRLEAD_SPOOL_MAX_BYTES", "-1"),
        ("FAIRLEAD_LOG_FORMAT", "xml"),
        ("FAIRLEAD_FIRST_BYTE_TIMEOUT_SECONDS", "nan"),
        ("FAIRLEAD_TOTAL_TIMEOUT_SECONDS", "0"),
        ("FAIRLEAD_CONNECT_TIMEOUT_SECONDS", "soon"),
        ("FAIRLEAD_DECISION_SAMPLE_RATE", "1.5"),
        ("FAIRLEAD_SPOOL_DIR", "/proc/no/such"),
    ],
)
def test_an_unusable_value_is_named_with_a_remedy(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_settings(_environment(tmp_path, **{name: value}))
    assert caught.value.field == name
    assert value in str(caught.value)
