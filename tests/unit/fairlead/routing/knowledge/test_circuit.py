from fairlead.routing.knowledge.circuit import Circuit, CircuitSettings

SETTINGS = CircuitSettings(failures=3, backoff_seconds=1.0, longest_backoff_seconds=3.0, probe_seconds=10.0)


def opened(at: float = 0.0) -> Circuit:
    circuit = Circuit(SETTINGS)
    for _ in range(3):
        circuit.failed(at)
    return circuit


def test_it_stays_closed_below_the_threshold_and_forgets_failures_on_success() -> None:
    circuit = Circuit(SETTINGS)
    circuit.failed(0.0)
    circuit.failed(0.0)
    circuit.worked()
    circuit.failed(0.0)
    circuit.failed(0.0)
    assert circuit.admits(0.0)


def test_three_failures_in_a_row_open_it_for_the_backoff() -> None:
    circuit = opened()
    assert not circuit.admits(0.99)
    assert circuit.admits(1.0)


def test_half_open_it_admits_one_probe() -> None:
    circuit = opened()
    circuit.dispatched("r", 1.0)
    assert not circuit.admits(10.9)
    assert circuit.admits(11.0)


def test_a_failed_probe_doubles_the_backoff_up_to_the_longest() -> None:
    circuit = opened()
    circuit.dispatched("r", 1.0)
    circuit.failed(1.5)
    assert circuit.broken_until == 3.5
    circuit.dispatched("r", 3.5)
    circuit.failed(4.0)
    assert circuit.broken_until == 7.0


def test_a_probe_that_worked_closes_it_and_resets_the_backoff() -> None:
    circuit = opened()
    circuit.dispatched("r", 1.0)
    circuit.failed(1.0)
    circuit.worked()
    assert circuit.admits(0.0)
    for _ in range(3):
        circuit.failed(5.0)
    assert circuit.broken_until == 6.0


def test_late_failures_of_requests_sent_before_it_opened_do_not_extend_it() -> None:
    circuit = opened()
    circuit.failed(0.5)
    assert circuit.broken_until == 1.0


def test_a_probe_that_ended_without_verdict_makes_room_for_another() -> None:
    circuit = opened()
    circuit.dispatched("r", 1.0)
    circuit.ended("other", 2.0)
    assert not circuit.admits(2.0)
    circuit.ended("r", 2.0)
    assert circuit.admits(2.0)


def test_dispatches_through_a_closed_circuit_change_nothing() -> None:
    circuit = Circuit(SETTINGS)
    circuit.dispatched("r", 1.0)
    circuit.ended("r", 1.0)
    assert circuit.admits(0.0)


def test_each_request_that_goes_on_beside_asks_for_as_many_failures_more() -> None:
    circuit = Circuit(SETTINGS)
    for _ in range(8):
        circuit.failed(0.0, beside=2)
    assert circuit.admits(0.0)
    circuit.failed(0.0, beside=2)
    assert not circuit.admits(0.0)


def test_more_of_an_answer_ends_the_row_and_closes_nothing() -> None:
    circuit = Circuit(SETTINGS)
    circuit.failed(0.0)
    circuit.failed(0.0)
    circuit.lives()
    circuit.failed(0.0)
    assert circuit.admits(0.0)
    circuit = opened()
    circuit.lives()
    assert not circuit.admits(0.99)


def test_a_failure_that_was_not_the_instances_own_closes_what_it_opened_and_nothing_proven() -> None:
    circuit = opened()
    circuit.excused()
    assert circuit.admits(0.0) and not circuit.is_open
    circuit = opened()
    circuit.dispatched("r", 1.0)
    circuit.suspected(1.5)
    circuit.probe_failed(1.5)
    circuit.excused()
    assert not circuit.admits(3.4)


def test_a_probe_whose_failure_may_be_its_own_waits_no_longer_until_that_is_known() -> None:
    circuit = opened()
    circuit.dispatched("r", 1.0)
    assert circuit.is_probe("r")
    circuit.suspected(1.5)
    assert (circuit.broken_until, circuit.is_probe("r")) == (2.5, False)
    circuit.probe_failed(2.0)
    assert circuit.broken_until == 4.0


def test_what_is_sent_through_an_open_circuit_is_no_probe() -> None:
    circuit = opened()
    circuit.dispatched("r", 0.5)
    assert (circuit.broken_until, circuit.is_probe("r")) == (1.0, False)
