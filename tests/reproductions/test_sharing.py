from pathlib import Path

from reproductions import sharing
from reproductions.sections import Context


def test_the_section_has_a_table_per_question(tmp_path: Path) -> None:
    text = sharing.write(Context(docs=tmp_path, seeds=1, quick=True, say=lambda _: None))
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### One tenant floods",
        "### What fairness costs where nobody floods",
        "### Priority classes beyond saturation",
    ]
    assert text.count("| --- |") == 3
