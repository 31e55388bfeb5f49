"""The section on copies: its smallest run goes through all of it, and compares each policy with itself."""

from pathlib import Path

from reproductions.copies import write
from reproductions.sections import Context


def test_the_section_has_each_policy_with_and_without_copies(tmp_path: Path) -> None:
    text = write(Context(docs=tmp_path, quick=True, seeds=1, say=lambda line: None))
    assert "| `fairlead`, not copying |" in text
    assert "| `fairlead`, copying |" in text
