"""docs/gateway.md describes the gateway completely: no path or error code is missing."""

import re
from pathlib import Path

import pytest

from fairlead.reports.rejections import RejectionReason
from fairlead_router.protocols import paths

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
SOURCES = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "router" / "fairlead_router").glob("*.py"))


@pytest.mark.parametrize("path", paths.KNOWN)
def test_every_path_is_on_the_page(path: str) -> None:
    assert f"`{path}`" in PAGE


def test_every_code_of_an_error_is_on_the_page() -> None:
    codes = set(re.findall(r'BadRequest\(\s*\d+, "([a-z_]+)"', SOURCES)) | {reason.value for reason in RejectionReason} | {"internal_error"}
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()
