"""Each cause that moves something is produced by a scheduler: here, or in test_long_histories.py."""

import pytest

from fairlead.reports.bindings import BindingReason
from fairlead.routing.explanations.explaining_moves import TRIGGERS
from fairlead.routing.explanations.move_checking import cause_contradictions
from fairlead_testing.worlds.rare_moves import SCENARIOS, triggers


@pytest.mark.parametrize("reason", SCENARIOS)
def test_what_seldom_moves_anything_does_move_it_and_the_record_says_so(reason: BindingReason) -> None:
    records = SCENARIOS[reason]().take_records(20.0, final=True)
    assert reason in triggers(records)
    for move in (*records.migrations, *records.reroutes):
        assert cause_contradictions(move) == []
        assert TRIGGERS[move.trigger]
