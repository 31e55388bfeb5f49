"""What routers have learnt of engines, in words."""

from dataclasses import replace

from fairlead.reports.engines import Quantity
from fairlead_client.resources.instances import LearntOfEngines
from fairlead_web.learnt_figures import learnt_of

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


def test_a_sentence_is_the_mean_over_routers_by_their_samples() -> None:
    other = replace(PREFILL, router="router-1", learnt=1 / 2_560, samples=50, error=0.1, declared_error=None, in_use=True)
    found = learnt_of([PREFILL, other], (Quantity.PREFILL,))
    assert found.sentences == [
        "Prefill speed: 4,096 tokens/s learnt, 5,000 declared; off by 7.0 % in the mean, the declared by 10.0 %; "
        "200 prefills at router-0 and router-1."
    ]
    assert [(row.router, row.learnt, row.declared, row.samples, row.in_use) for row in found.rows] == [
        ("router-0", "5,120", "5,000", 150, False),
        ("router-1", "2,560", "5,000", 50, True),
    ]


def test_what_is_declared_nowhere_or_was_never_predicted_is_left_out() -> None:
    step = replace(PREFILL, quantity=Quantity.DECODE, learnt=0.0312, declared=None, error=None, declared_error=None, samples=1)
    found = learnt_of([step], (Quantity.DECODE,))
    assert found.sentences == ["Decode step: 31.2 ms learnt; 1 answer at router-0."]
    assert (found.rows[0].declared, found.rows[0].error) == ("–", None)


def test_what_is_not_learnt_yet_is_said_with_what_teaches_it() -> None:
    found = learnt_of([PREFILL, replace(PREFILL, quantity="of a newer router")], (Quantity.DECODE, Quantity.TEXT))
    assert found.rows == []
    assert found.sentences == [
        "Decode step: nothing learnt yet; streamed answers that are not short teach it.",
        "Bytes per token: nothing learnt yet; answers whose usage has the tokens of the prompt teach it.",
    ]
