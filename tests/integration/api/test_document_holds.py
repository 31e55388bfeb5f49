"""The OpenAPI document is true: every case that Schemathesis makes of it is answered as documented, for every role.

`make test-api-fuzz` sends many more cases, at random.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from fairlead_testing.examples import examples
from fairlead_testing.running.fuzzing import ROLES, FuzzedApi, fuzzed_api
from fairlead_testing.running.postgres import fresh_database

ROOT = Path(__file__).resolve().parents[3]
FEW = 2
EXAMPLES = int(os.environ.get("FAIRLEAD_FUZZ_EXAMPLES", FEW))
"""Cases for each endpoint and way of generating them; each is sent as every role."""

DOCUMENT: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
HOLDS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.allow_header_conformance,
]


def operations() -> list[tuple[str, str]]:
    """Return paths and methods; those that may delete what others read come last."""
    found = [(path, method) for path, item in DOCUMENT["paths"].items() for method in item]
    return sorted(found, key=lambda one: (one[1] == "delete", one[0].startswith("/internal"), one[1] != "get"))


@pytest.fixture(scope="module")
def fuzzed(postgres_url: str) -> Iterator[FuzzedApi]:
    with fresh_database(postgres_url) as url, fuzzed_api(url) as api:
        yield api


@pytest.mark.parametrize(("path", "method"), operations(), ids=lambda given: given)
def test_every_answer_is_one_that_the_document_names(fuzzed: FuzzedApi, path: str, method: str) -> None:
    operation = SCHEMA[path][method.upper()]
    ids = {name: value for name, value in fuzzed.ids.items() if f"{{{name}}}" in path}
    if "/scaling-decisions/" in path:
        ids["decision_id"] = "scale-1"
    _hold(fuzzed, operation, GenerationMode.POSITIVE, ids)
    with contextlib.suppress(Unsatisfiable):  # of an endpoint that takes nothing nothing can be wrong
        _hold(fuzzed, operation, GenerationMode.NEGATIVE, ids if EXAMPLES > FEW else {})
    if EXAMPLES > FEW:
        _hold(fuzzed, operation, GenerationMode.POSITIVE, {})


def _hold(fuzzed: FuzzedApi, operation: Any, mode: GenerationMode, known: dict[str, str]) -> None:
    @examples(EXAMPLES, phases=[Phase.generate], suppress=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode, path_parameters=known or None))
    def sent(case: Any) -> None:
        for role in ROLES:
            answer = fuzzed.send(case, role)
            if _is_missing_here(answer):
                continue
            case.validate_response(answer, checks=HOLDS)
            _check_problem(answer)

    sent()


def _check_problem(answer: httpx.Response) -> None:
    assert answer.headers["x-request-id"]
    if answer.status_code >= 400:
        problem = answer.json()
        assert problem["request_id"] == answer.headers["x-request-id"]
        assert problem["type"]
        assert problem.get("remedy") is None or problem["remedy"] not in problem["detail"], "the remedy is told once"


def _is_missing_here(answer: httpx.Response) -> bool:
    """Return whether the path needs the simulator's processes or an instance's engine, which this API does not have."""
    of_engine = answer.request.url.path.endswith("/metrics") and "the engine does not answer" in answer.text
    return answer.status_code == 503 and (of_engine or answer.json()["type"] == "simulations-disabled")
