"""docs/gateway.md says what the gateway does: no path, setting or code is missing there."""

import re
from pathlib import Path

import pytest

from fairlead.reports import RejectionReason
from fairlead_router import paths, settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
SOURCES = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "router" / "fairlead_router").glob("*.py"))
ELSEWHERE = {
    "FAIRLEAD_API_URL", "FAIRLEAD_API_TOKEN", "FAIRLEAD_ROUTER_ID", "FAIRLEAD_SPOOL_DIR", "FAIRLEAD_SPOOL_MAX_BYTES",
    "FAIRLEAD_DECISION_SAMPLE_RATE", "FAIRLEAD_LOG_FORMAT", "FAIRLEAD_LOG_LEVEL",
}  # fmt: skip
"""Settings that are no business of clients."""


@pytest.mark.parametrize("path", paths.KNOWN)
def test_every_path_is_on_the_page(path: str) -> None:
    assert f"`{path}`" in PAGE


def test_every_setting_of_the_gateway_is_on_the_page_and_none_that_is_not_read() -> None:
    read = set(re.findall(r'"(FAIRLEAD_[A-Z_]+)"', Path(settings.__file__).read_text(encoding="utf-8")))
    assert set(re.findall(r"FAIRLEAD_[A-Z_]+", PAGE)) == read - ELSEWHERE


def test_every_code_of_an_error_is_on_the_page() -> None:
    codes = set(re.findall(r'BadRequest\(\s*\d+, "([a-z_]+)"', SOURCES)) | {reason.value for reason in RejectionReason} | {"internal_error"}
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()
