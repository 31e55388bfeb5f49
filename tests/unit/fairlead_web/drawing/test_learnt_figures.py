"""Figures of engines that routers have measured, in words."""

from dataclasses import replace

from fairlead.capabilities import EngineCapability, Figure, Source, declared
from fairlead.reports.engines import Quantity
from fairlead_client.resources.instances import LearntOfEngines
from fairlead_web.drawing.learnt_figures import learnt_of

PREFILL = LearntOfEngines(
    router="router-0",
    quantity=Quantity.PREFILL,
    learnt=1 / 5_120,
    declared=1 / 5_000,
    samples=150,
    error=0.06,
    declared_error=0.1,
    in_use=False,
)


SEEN = EngineCapability(
    prefill_tokens_per_second=Figure(value=4_096.0, source=Source.MEASURED, samples=41, age_seconds=20.0),
    decode_step_seconds=Figure(value=0.0312, source=Source.MEASURED, samples=1, age_seconds=240.0),
)


def test_a_sentence_says_how_a_figure_is_known_and_how_wrong_predictions_were() -> None:
    other = replace(PREFILL, router="router-1", learnt=1 / 2_560, samples=50, error=0.1, declared_error=None, in_use=True)
    found = learnt_of([PREFILL, other], (Quantity.PREFILL,), SEEN)
    assert found.sentences == [
        "Prefill speed: 4,096 tokens/s (measured, 41 prefills, 20 s ago); 5,000 declared; mean error 7.0 %, "
        "of the declared value 10.0 %; seen by router-0 and router-1."
    ]
    assert [(row.router, row.learnt, row.declared, row.samples, row.in_use) for row in found.rows] == [
        ("router-0", "5,120", "5,000", 150, False),
        ("router-1", "2,560", "5,000", 50, True),
    ]


def test_a_row_shows_the_figure_and_the_samples_that_the_sentence_is_made_from() -> None:
    """Prefills too short to show the speed are left out of both."""
    rows = learnt_of([replace(PREFILL, value=4_000.0, value_samples=40)], (Quantity.PREFILL,), SEEN).rows
    assert [(row.learnt, row.samples) for row in rows] == [("4,000", 40)]


def test_what_is_declared_nowhere_or_was_never_predicted_is_left_out() -> None:
    step = replace(PREFILL, quantity=Quantity.DECODE, learnt=0.0312, declared=None, error=None, declared_error=None, samples=1)
    found = learnt_of([step], (Quantity.DECODE,), SEEN)
    assert found.sentences == ["Decode step: 31.2 ms (measured, 1 answer, 4 min ago); seen by router-0."]
    assert (found.rows[0].declared, found.rows[0].error) == ("–", None)


def test_a_declared_figure_is_said_to_be_declared_with_or_without_a_prefill_that_was_seen() -> None:
    known = EngineCapability(prefill_tokens_per_second=declared(5_000.0))
    assert learnt_of([], (Quantity.PREFILL,), known).sentences == [
        "Prefill speed: 5,000 tokens/s (declared, not measured yet); routers measure it from streamed answers."
    ]
    (sentence,) = learnt_of([replace(PREFILL, samples=2)], (Quantity.PREFILL,), known).sentences
    assert sentence.startswith("Prefill speed: 5,000 tokens/s (declared, not measured yet); mean error 6.0")


def test_what_is_not_learnt_yet_is_said_with_what_teaches_it() -> None:
    found = learnt_of([PREFILL, replace(PREFILL, quantity="of a newer router")], (Quantity.DECODE, Quantity.TEXT))
    assert found.rows == []
    assert found.sentences == [
        "Decode step: not measured yet; routers measure it from streamed answers that are not short.",
        "Bytes per token: not measured yet; routers measure it from answers whose usage counts the prompt's tokens.",
    ]
