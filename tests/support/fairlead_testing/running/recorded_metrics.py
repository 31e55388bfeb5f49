"""The control API as a process that records the requests at its port for external metrics, and their answers.

`python -m fairlead_testing.running.recorded_metrics FILE …` takes the options of `fairlead_api.main` after the file.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairlead_api.autoscalers.delegation import common_name
from fairlead_api.autoscalers.metrics_port import Answer, ExternalMetrics, Scope
from fairlead_api.main import main


def exchange(scope: Scope, answer: Answer) -> Mapping[str, Any]:
    """Return a request and its answer as a JSON object."""
    return {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode("latin-1"),
        "client": common_name(scope["state"]["client_certificate"]),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "status": answer.code,
        "answer": answer.document,
    }


def exchanges(file: Path) -> list[Mapping[str, Any]]:
    """Return the recorded requests with their answers."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


OF_THE_RUN = {
    "host": "192.0.2.1:443",
    "x-forwarded-host": "192.0.2.1:443",
    "x-forwarded-for": "192.0.2.2",
    "audit-id": "0",
    "x-remote-uid": "0",
    "x-remote-extra-authentication.kubernetes.io%2fcredential-id": "JTI=0",
}
"""The headers whose values differ in each run, with the values that replace them in a fixture."""


def as_fixture(recorded: Iterable[Mapping[str, Any]]) -> str:
    """Return the fixture's text: each kind of exchange once, in order of arrival, without values that differ in each
    run.
    """
    stable = [{**one, "headers": [[name, OF_THE_RUN.get(name, value)] for name, value in one["headers"]]} for one in recorded]
    first = {json.dumps({**one, "answer": without_times(one["answer"])}): one for one in reversed(stable)}
    kept = [one for one in stable if any(one is same for same in first.values())]
    return "[\n" + ",\n".join(json.dumps(one) for one in kept) + "\n]\n"


def without_times(document: Any) -> Any:
    """Return a document without its timestamps."""
    if isinstance(document, dict):
        return {name: without_times(value) for name, value in document.items() if name != "timestamp"}
    return [without_times(one) for one in document] if isinstance(document, list) else document


def record(file: Path) -> None:
    """Make the port append each request with its answer to the file, as a line of JSON."""
    answered = ExternalMetrics._answer

    async def recorded(port: ExternalMetrics, scope: Scope) -> Answer:
        answer = await answered(port, scope)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(exchange(scope, answer)) + "\n")
        return answer

    ExternalMetrics._answer = recorded  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    record(Path(sys.argv.pop(1)))
    main(prog_name="python -m fairlead_api.main")
