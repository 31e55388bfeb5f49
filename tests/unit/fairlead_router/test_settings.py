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
    assert settings.api_urls == ("http://127.0.0.1:8080",)
    assert settings.max_body_bytes == 32 * 1024 * 1024
    assert settings.spool_dir.is_dir()


def test_origins_of_pages_are_listed_with_commas(tmp_path: Path) -> None:
    settings = read_settings(_environment(tmp_path, FAIRLEAD_CORS_ORIGINS="https://Chat.example.com, http://localhost:3000,null,"))
    assert settings.cors_origins == ("https://chat.example.com", "http://localhost:3000", "null")
    assert read_settings(_environment(tmp_path, FAIRLEAD_CORS_ORIGINS="*")).cors_origins == ("*",)


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
        ("FAIRLEAD_BODY_MEMORY_BYTES", "1048576"),
        ("FAIRLEAD_CORS_ORIGINS", "chat.example.com"),
        ("FAIRLEAD_CORS_ORIGINS", "https://chat.example.com/"),
        ("FAIRLEAD_CORS_ORIGINS", "https://a b"),
        ("FAIRLEAD_SPOOL_MAX_BYTES", "-1"),
        ("FAIRLEAD_LOG_FORMAT", "xml"),
        ("FAIRLEAD_FIRST_BYTE_TIMEOUT_SECONDS", "nan"),
        ("FAIRLEAD_TOTAL_TIMEOUT_SECONDS", "0"),
        ("FAIRLEAD_CONNECT_TIMEOUT_SECONDS", "soon"),
        ("FAIRLEAD_DECISION_SAMPLE_RATE", "1.5"),
        ("FAIRLEAD_SPOOL_DIR", "/proc/no/such"),
        ("FAIRLEAD_IDLE_TIMEOUT_SECONDS", "-1"),
        ("FAIRLEAD_MAX_CONNECTIONS", "0"),
        ("FAIRLEAD_GATEWAY_KEYS_FILE", "/no/such/file"),
        ("FAIRLEAD_ROUTER_ASK_HOST", "0.0.0.0"),
        ("FAIRLEAD_ROUTER_ASK_PORT", "65536"),
    ],
)
def test_an_unusable_value_is_named_with_a_remedy(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_settings(_environment(tmp_path, **{name: value}))
    assert caught.value.field == name
    assert value in str(caught.value)


def test_api_keys_come_from_a_list_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# whose\nthird-key-0123456789  # a team\n\n", encoding="utf-8")
    keys = {"FAIRLEAD_GATEWAY_KEYS": "first-key-0123456789, second-key-0123456789", "FAIRLEAD_GATEWAY_KEYS_FILE": str(path)}
    settings = read_settings(_environment(tmp_path, **keys))
    assert settings.gateway_keys == ("first-key-0123456789", "second-key-0123456789", "third-key-0123456789")
    assert "first-key" not in repr(settings)
    assert read_settings(_environment(tmp_path)).gateway_keys == ()


@pytest.mark.parametrize("key", ["short", "with a space in it all", "schlüssel-0123456789"])
def test_a_key_that_cannot_be_one_is_refused_without_being_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidInput, match="at least 16 printable") as caught:
        read_settings(_environment(tmp_path, FAIRLEAD_GATEWAY_KEYS=key))
    assert key not in str(caught.value)


def test_a_file_without_keys_does_not_open_the_gateway_to_everybody(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# none yet\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="FAIRLEAD_GATEWAY_KEYS_FILE"):
        read_settings(_environment(tmp_path, FAIRLEAD_GATEWAY_KEYS_FILE=str(path)))
