"""A person's environment variables reach the processes that read them, and an unknown one is reported."""

import pytest

from fairlead.errors import InvalidInput
from fairlead_sandbox.processes import ProcessSpec, Started
from fairlead_sandbox.settings import handed_on, kubernetes_variables, strange

ROUTER = ProcessSpec(name="router-0", command=("x",), readiness=Started(), reads=frozenset({"FAIRLEAD_MAX_RETRIES", "FAIRLEAD_LOG_LEVEL"}))


def test_a_process_gets_the_variables_it_reads_and_everything_that_is_not_ours() -> None:
    environment = {
        "PATH": "/bin",
        "FAIRLEAD_MAX_RETRIES": "1",
        "FAIRLEAD_DATABASE_URL": "for the API",
        "FAIRLEAD_SANDBOX_STATE_DIR": "/s",
    }
    assert handed_on(environment, ROUTER.reads) == {"PATH": "/bin", "FAIRLEAD_MAX_RETRIES": "1", "FAIRLEAD_SANDBOX_STATE_DIR": "/s"}


def test_a_variable_that_nothing_reads_is_named_with_the_one_it_may_be_meant_for() -> None:
    environment = {
        "FAIRLEAD_MAX_RETRYS": "1",
        "FAIRLEAD_ZZZ": "1",
        "FAIRLEAD_MAX_RETRIES": "1",
        "FAIRLEAD_DATABASE_URL": "x",
        "FAIRLEAD_STATE_DIR": "x",
    }
    assert strange(environment, [ROUTER]) == [
        "FAIRLEAD_MAX_RETRYS is set, but nothing reads it: is FAIRLEAD_MAX_RETRIES meant?",
        "FAIRLEAD_ZZZ is set, but nothing reads it",
    ]


def test_the_kubernetes_api_and_its_node_log_as_every_process_does() -> None:
    assert kubernetes_variables({}) == {"PROCESSKUBE_LOG_LEVEL": "INFO", "PROCESSKUBE_LOG_FORMAT": "text"}
    set_here = {"FAIRLEAD_LOG_LEVEL": "DEBUG", "FAIRLEAD_LOG_FORMAT": "json", "FAIRLEAD_DEBUG": "1"}
    assert kubernetes_variables(set_here) == {
        "PROCESSKUBE_LOG_LEVEL": "DEBUG",
        "PROCESSKUBE_LOG_FORMAT": "json",
        "PROCESSKUBE_DEBUG": "1",
    }
    with pytest.raises(InvalidInput, match=r"^FAIRLEAD_LOG_LEVEL: 'loud'"):
        kubernetes_variables({"FAIRLEAD_LOG_LEVEL": "loud"})
