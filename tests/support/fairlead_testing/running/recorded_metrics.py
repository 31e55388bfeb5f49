"""The control API as a process that writes down what is asked at its port for external metrics, and the answers.

`python -m fairlead_testing.running.recorded_metrics FILE …` takes the options of `fairlead_api.main` after the file.
"""

import json
import sys
from collections.abc import Mapping
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


def record(file: Path) -> None:
    """From now on the port writes each request with its answer as a line of the file."""
    answered = ExternalMetrics._answer

    async def recorded(port: ExternalMetrics, scope: Scope) -> Answer:
        answer = await answered(port, scope)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(exchange(scope, answer)) + "\n")
        return answer

    ExternalMetrics._answer = recorded  # type: ignore[method-assign]


if __name__ == "__main__":
    record(Path(sys.argv.pop(1)))
    main(prog_name="python -m fairlead_api.main")
