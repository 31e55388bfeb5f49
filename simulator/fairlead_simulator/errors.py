"""Errors of the simulator.

SimulatorError
├── EngineOverloaded    the engine's waiting list is full; try again later (503)
├── ContextTooLong      the request can never fit the engine's KV cache (400)
├── TraceInvalid        a trace file cannot be read; names file, line and field
├── RecordsUnusable     no engine can be fitted to these records of served requests
├── EngineFileInvalid   a file with a fitted engine cannot be read; names file and field
├── TimelineInvalid     a timeline file cannot be read; names file, event and field
├── ScalingInvalid      a file of scaling rules cannot be read; names file and field
├── WorkloadImpossible  the simulated pool could never serve these requests
└── OutputUnwritable    a file or folder for results cannot be written

CellFailed is not a SimulatorError: a policy's code failed, and the author of the policy needs the traceback.
"""

from pathlib import Path


class SimulatorError(Exception):
    """The base of all errors that this package raises on purpose. `str(error)` is a line that can be shown to a
    user.
    """


class EngineOverloaded(SimulatorError):
    """Raised when the engine's waiting list is full."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"the engine already has {waiting} requests waiting; try again later")


class ContextTooLong(SimulatorError):
    """Raised when prompt and answer together are longer than the engine's whole KV cache."""

    def __init__(self, prompt_tokens: int, max_tokens: int, capacity_tokens: int) -> None:
        begin = f"This model's maximum context length is {capacity_tokens} tokens. However, "
        if prompt_tokens >= capacity_tokens:
            problem = f"your prompt contains {prompt_tokens} input tokens, which exceeds this limit even without any output tokens."
        else:
            problem = f"you requested {max_tokens} output tokens and your prompt contains {prompt_tokens} input tokens."
        super().__init__(f"{begin}{problem} Please reduce the length of the input prompt or the number of requested output tokens.")


class TraceInvalid(SimulatorError):
    """Raised for a line of a trace that cannot be used, or for a whole file; `line` is 0 for a whole file.

    `field` and `problem` may quote text from the file, of any length and with any characters. The message shortens them
    and is always one line.
    """

    def __init__(self, file: str, line: int, field: str, problem: str) -> None:
        field, problem = _one_line(field, 200), _one_line(problem, 600)
        self.file = file
        self.line = line
        self.field = field
        place = f"{file}:{line}" if line else file
        super().__init__(f"{place}: {field}: {problem}" if field else f"{place}: {problem}")


def _one_line(text: str, longest: int) -> str:
    short = text if len(text) <= longest else f"{text[:longest]}..."
    return short if short.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in short)


class RecordsUnusable(SimulatorError):
    """Raised for records that cannot be used for a fit. The message names the records, the fault, and the records to
    make instead.
    """


class EngineFileInvalid(SimulatorError):
    """Raised for an engine file that cannot be used; the message names file and field."""


class TimelineInvalid(SimulatorError):
    """Raised for a timeline file that cannot be used; the message names file, event and field."""


class ScalingInvalid(SimulatorError):
    """Raised for a file of scaling rules that cannot be used; the message names file and field."""


class WorkloadImpossible(SimulatorError):
    """Raised for a workload that cannot be run; the message names the request, the cause and, if there is one, the
    remedy.
    """


class OutputUnwritable(SimulatorError):
    """Raised when a file or folder for results cannot be written."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: cannot be written: {problem}; {remedy}")


class CellFailed(Exception):
    """Raised when a run of an experiment failed; the message says which run, and why."""
