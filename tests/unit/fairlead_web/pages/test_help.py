"""The page Help names every mode of early rejection, and uses the terms of the other pages."""

from fairlead.tables import EARLY_REJECTION_MODES
from fairlead_web.pages.help import GLOSSARY

WORDS = dict(GLOSSARY)


def test_every_mode_of_early_rejection_is_named() -> None:
    assert [mode for mode in EARLY_REJECTION_MODES if mode not in WORDS["Early rejection"]] == []


def test_a_move_of_a_session_and_of_a_request_are_two_words() -> None:
    assert "request" not in WORDS["Migration"]
    assert "session" in WORDS["Migration"]
    assert "No session moves" in WORDS["Re-route"]
