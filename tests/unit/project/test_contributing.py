"""The files that CONTRIBUTING.md lists exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LISTS = {
    title: text
    for title, _, text in (part.partition("\n") for part in (ROOT / "CONTRIBUTING.md").read_text().split("\n## "))
    if title.startswith("Add ")
}


@pytest.mark.parametrize("title", LISTS)
def test_every_file_of_a_list_is_there(title: str) -> None:
    named = re.findall(r"`([a-z]\w*(?:/[\w<>.-]+)+/?)`", LISTS[title].replace("<what it is about>", "<subject>"))
    assert named, title
    missing = [path for path in named if not list(ROOT.glob(re.sub(r"<\w+>", "*", path).rstrip("/")))]
    assert missing == []
