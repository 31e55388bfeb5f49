"""Detects from the first lines of a trace file which tool wrote it. If `fairlead traces convert` cannot read the file,
the error says what the file is and what to convert instead.
"""

from dataclasses import dataclass
from shlex import quote

import orjson

from fairlead_simulator.errors import TraceInvalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form of trace files. `whose` completes the sentence "the file is …". `block_tokens` is the form's usual number
    of tokens per block id.
    """

    whose: str
    columns: tuple[str, ...] = ()
    """A CSV file's column names for the time, the prompt tokens and the answer tokens; empty for other files."""
    block_tokens: int = 512


FORMS = {
    "jsonl": Form(whose="in Mooncake's JSONL format"),
    "csv": Form(whose="CSV with Mooncake's fields", columns=("timestamp", "input_length", "output_length")),
    "azure": Form(whose="Azure's CSV", columns=("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    "burstgpt": Form(whose="BurstGPT's CSV", columns=("Timestamp", "Request tokens", "Response tokens")),
    "alibaba": Form(whose="Alibaba's JSONL (Qwen-Bailian)", block_tokens=16),
    "aiperf": Form(whose="aiperf's JSONL"),
    "guidellm": Form(whose="a file of guidellm"),
}
_KEYS = {
    "aiperf": ({"metadata", "metrics"}, {"text_input"}, {"messages"}, {"payload"}, {"input_length"}),
    "alibaba": ({"chat_id", "parent_chat_id"},),
    "guidellm": ({"benchmarks"}, {"prompt"}),
    "jsonl": ({"input_length", "hash_ids"},),
}
"""Form → sets of field names. A file has the form if all names of one set occur in its first line or, if the file is
one JSON document, in the document.
"""
_UNTIMED = {
    (b"data", b"session_id", b"payloads"): "aiperf's inputs.json, which has no times of requests",
    (b"input_config",): "aiperf's summary of a run, which lists no requests",
}
"""Files that cannot be converted: field names by which a file is recognised → words for an error, which name the file
and the data that it lacks.
"""
_ORDER = ("alibaba", "jsonl", "aiperf", "guidellm")


def form_of(begin: bytes) -> str | None:
    """Return the form of a file that begins with these bytes, as a key of FORMS; None for an unknown form."""
    first = begin.lstrip().partition(b"\n")[0].strip()
    if first.startswith(b"{"):
        return _form_of_json(first, begin)
    columns = columns_of(first.decode("utf-8", "replace"))
    return next((name for name, form in FORMS.items() if form.columns and {*form.columns} <= {*columns}), None)


def columns_of(line: str) -> list[str]:
    """Return the column names in the first line of a CSV file, with any of the separators that `separator_of` knows."""
    return [one.strip().strip('"') for one in line.split(separator_of(line))]


def separator_of(line: str) -> str:
    """Return the character that separates the cells of a CSV file, judged by its first line: comma, semicolon or
    tab.
    """
    return max((",", ";", "\t"), key=line.count)


def _form_of_json(first: bytes, begin: bytes) -> str | None:
    try:
        keys = {*orjson.loads(first)}
    except orjson.JSONDecodeError:  # a document over many lines
        return "guidellm" if b'"benchmarks"' in begin else None
    return next((name for name in _ORDER if any(wanted <= keys for wanted in _KEYS[name])), None)


def check_mooncake(begin: bytes, file: str) -> None:
    """Raise TraceInvalid if the file is not in Mooncake's form. The message has the command that converts the file."""
    form = form_of(begin)
    if form not in (None, "jsonl"):
        command = f"fairlead traces convert --from {form} {quote(file)} --out trace.jsonl"
        raise TraceInvalid(file, 0, "", f"is {FORMS[form].whose}, not in Mooncake's JSONL format; convert it: {command}")
    if begin.lstrip()[:1] == b"[":
        raise TraceInvalid(file, 0, "", "is a JSON list; write one JSON object per line (jq -c '.[]' does)")
    for names, words in _UNTIMED.items():
        if form is None and all(b'"%b"' % name in begin for name in names):
            raise TraceInvalid(file, 0, "", f"is {words}; convert the profile_export.jsonl of the same run")
