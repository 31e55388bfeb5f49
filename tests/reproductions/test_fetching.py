"""The section on fetching: its smallest run goes through all of it, and compares each policy with itself."""

from pathlib import Path

from reproductions.fetching import write
from reproductions.sections import Context


def test_the_section_has_each_policy_with_and_without_fetching(tmp_path: Path) -> None:
    text = write(Context(docs=tmp_path, quick=True, say=lambda line: None))
    assert "| `fairlead`, recomputing |" in text
    assert "| `fairlead`, fetching |" in text
    assert "Fetching changes what `fairlead` serves in time by" in text
