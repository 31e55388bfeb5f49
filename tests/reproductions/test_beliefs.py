"""The section on wrong beliefs: its smallest run goes through all of it, and told anything the pool serves alike."""

from pathlib import Path

from reproductions.beliefs import BELIEFS, write
from reproductions.sections import Context


def test_the_section_has_a_column_for_each_belief_and_says_what_is_lost(tmp_path: Path) -> None:
    text = write(Context(docs=tmp_path, quick=True, say=lambda line: None))
    for belief in BELIEFS:
        assert f"told {belief:g}x" in text
    assert "lose more than a point" in text
