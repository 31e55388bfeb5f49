"""Reads Alibaba's traces of Qwen in Bailian (https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon). They are
JSONL with times in seconds, a block id for every 16 tokens and, for each chat, the id of the chat that it continues.

Chats that continue one another are a session, which is named after the first chat. A block id is the hash of the text
of its own block, without the text before it.
"""

from collections.abc import Iterator

from fairlead_simulator.traces.blocks import BlockNames
from fairlead_simulator.traces.fields import Other, shown
from fairlead_simulator.traces.reading import Reading
from fairlead_simulator.traces.rows import TraceRow, object_of
from fairlead_simulator.traces.sources import TraceFile

_KNOWN = {"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids"}


def read_alibaba(source: TraceFile, reading: Reading) -> Iterator[tuple[int, TraceRow]]:
    """Yield the rows of a file, with their line numbers."""
    names, firsts = BlockNames(), dict[str, str]()
    for number, line in source:
        record = Other(object_of(line, source.name, number), source.name, number)
        reading.notes.drop(key for key in record.document if key not in _KNOWN)
        length = record.tokens("input_length", 1)
        yield (
            number,
            TraceRow(
                timestamp_ms=record.time_ms("timestamp", 1e3),
                input_length=length,
                output_length=record.tokens("output_length", 0),
                hash_ids=names.of_ids(checked_ids(record, length, reading.block_tokens), length, reading.block_tokens),
                session=_session(record, firsts),
            ),
        )


def checked_ids(record: Other, length: int, block_tokens: int) -> tuple[int, ...]:
    """Return the row's block ids. Raises TraceInvalid if their number does not fit the prompt's length. A partial last
    block need not have an id.
    """
    ids = record.ids()
    needed = -(-length // block_tokens)
    if len(ids) not in (needed, length // block_tokens):
        problem = f"holds {len(ids)} ids; input_length {length} needs {needed} (one per {block_tokens} tokens); give --block-size"
        raise record.refusal("hash_ids", problem)
    return ids


def _session(record: Other, firsts: dict[str, str]) -> str:
    """Return the name of the row's session: the id of its first chat, or of the earliest chat that the file names."""
    chat, parent = record.name("chat_id"), record.name("parent_chat_id")
    if chat is None:
        raise record.refusal("chat_id", f"{shown(record.given('chat_id'))} must be text or a whole number")
    first = chat if parent in (None, "-1") else firsts.get(parent, parent)
    firsts[chat] = first
    return first
