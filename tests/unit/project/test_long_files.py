"""`--first` of tests/conftest.py: the Makefile names the files and folders that begin first."""

import re
from pathlib import Path

from fairlead_testing.long_files import place_of

ROOT = Path(__file__).parents[3]


def test_files_begin_in_the_order_in_which_they_or_their_folders_are_named() -> None:
    first = [ROOT / "b" / "test_long.py", ROOT / "c"]
    files = [ROOT / "a" / "test_x.py", ROOT / "b" / "test_a.py", ROOT / "b" / "test_long.py", ROOT / "c" / "d" / "test_y.py"]
    found = sorted(files, key=lambda path: place_of(path, first))
    assert [str(path.relative_to(ROOT)) for path in found] == ["b/test_long.py", "c/d/test_y.py", "a/test_x.py", "b/test_a.py"]


def test_each_list_of_the_makefile_is_given_by_the_option_that_sorts() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("LONGEST", "WAITING", "LONG_RUNS"):
        assert re.findall(rf"\S*\$\({name}\)", makefile) == [f"--first=,$({name})"]
