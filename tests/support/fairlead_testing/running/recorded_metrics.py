"""The control API as a process that writes down what is asked at its port for external metrics, and the answers.

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
    """A request and its answer, as JSON."""
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
    """What was asked so far, with its answers."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


OF_THE_RUN = {
    "host": "192.0.2.1:443",
    "x-forwarded-host": "192.0.2.1:443",
    "x-forwarded-for": "192.0.2.2",
    "audit-id": "0",
    "x-remote-uid": "0",
    "x-remote-extra-authentication.kubernetes.io%2fcredential-id": "JTI=0",
}
"""Headers that are new in each run, and what stands for them in a fixture."""


def as_fixture(recorded: Iterable[Mapping[str, Any]]) -> str:
    """Each kind of exchange once, in the order in which it came, without what is new in each run."""
    stable = [{**one, "headers": [[name, OF_THE_RUN.get(name, value)] for name, value in one["headers"]]} for one in recorded]
    first = {json.dumps({**one, "answer": without_times(one["answer"])}): one for one in reversed(stable)}
    kept = [one for one in stable if any(one is same for same in first.values())]
    return "[\n" + ",\n".join(json.dumps(one) for one in kept) + "\n]\n"


def without_times(document: Any) -> Any:
    """A document without its timestamps."""
    if isinstance(document, dict):
        return {name: without_times(value) for name, value in document.items() if name != "timestamp"}
    return [without_times(one) for one in document] if isinstance(document, list) else document


def record(file: Path) -> None:
    """From now on the port writes each request with its answer as a line of the file."""
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
