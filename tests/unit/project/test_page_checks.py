"""tests/e2e/web/README.md names, for each acceptance check of the pages, tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", (ROOT / "tests/e2e/web/README.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_all_forty_four_checks_are_told_in_order() -> None:
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 45))


def test_every_check_names_a_test_that_exists() -> None:
    missing = []
    for number, _, cell in ROWS:
        names = re.findall(r"`([^`]+)`", cell)
        missing += [f"{number}: {cell}"] * (not names)
        for name in names:
            path, _, test = name.partition("::")
            file = ROOT / path
            if not (test and file.is_file() and re.search(rf"^(async )?def {test}\(", file.read_text(encoding="utf-8"), re.MULTILINE)):
                missing.append(f"{number}: {name}")
    assert missing == []
