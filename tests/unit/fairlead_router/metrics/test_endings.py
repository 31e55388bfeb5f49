"""The table of endings, in code and in docs."""

from pathlib import Path

from fairlead_router.metrics.endings import CONSEQUENCES, Ending, Outcome

GATEWAY = Path(__file__).parents[4] / "docs" / "gateway.md"


def test_docs_print_the_table_of_endings() -> None:
    rows = [
        f"| {ending.value} | {row.when} | {row.charged.value} | `{row.counted.value}` | {row.slo} | {row.answered} |"
        for ending, row in CONSEQUENCES.items()
    ]
    page = GATEWAY.read_text()
    assert "\n".join(rows) in page, "the table under “How a request ends” should be\n" + "\n".join(rows)


def test_every_ending_has_consequences_and_every_outcome_an_ending() -> None:
    assert CONSEQUENCES.keys() == set(Ending)
    assert {row.counted for row in CONSEQUENCES.values()} == set(Outcome)
