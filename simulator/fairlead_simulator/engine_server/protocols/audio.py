"""`/v1/audio/transcriptions` and `/v1/audio/translations`. An uploaded WAV file is computed as a prompt of audio
tokens; the response consists of words that do not depend on what is said.
"""

import io
import wave
from dataclasses import dataclass
from math import ceil
from typing import Any

import orjson

from fairlead_simulator.engine_server import fields
from fairlead_simulator.engine_server.exchange import Exchange
from fairlead_simulator.engine_server.fields import Document
from fairlead_simulator.engine_server.protocols.chunks import DONE
from fairlead_simulator.engine_server.request_errors import RequestInvalid, missing, unsuitable
from fairlead_simulator.engine_server.served_instance import ServedInstance
from fairlead_simulator.engine_server.work import Run, Work

TOKENS_PER_SECOND = 50
"""Audio tokens per second of sound, as in Whisper, which has 1,500 for its window of 30 s."""

_WORDS_PER_SECOND = 3
_LONGEST_SECONDS = 3600
_FORMATS = ("json", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    """A received multipart form: its fields, and the bytes of the file."""

    fields: Document
    file: bytes


class Audio:
    """The handler of transcriptions or of translations. As in vLLM, responses to translations have no usage."""

    def __init__(self, task: str, chunk_id: str, *, tells_usage: bool) -> None:
        self._task = task
        self._chunk_id = chunk_id
        self._tells_usage = tells_usage

    async def serve(self, instance: ServedInstance, exchange: Exchange) -> None:
        upload = _form(await exchange.body(), exchange.headers.get(b"content-type", b""))
        fields.check_model(upload.fields, instance.settings.model)
        if upload.fields.get("response_format", "json") not in _FORMATS:
            raise RequestInvalid("Currently only support response_format: `text` or `json`")
        seconds = _seconds(upload.file)
        work = _work(upload, seconds, instance.settings.bytes_per_token)
        stream = _asked(upload.fields, "stream")
        request_id = instance.new_id(f"{self._chunk_id if stream else self._task}-")
        if stream:
            head = {"id": request_id, "object": f"{self._task}.chunk", "created": instance.now(), "model": instance.settings.model}
            await instance.stream(exchange, work, _SoundForm(head, _asked(upload.fields, "stream_include_usage")))
            return
        runs = await instance.compute(exchange, (work,))
        if runs is not None:
            usage = {"usage": {"type": "duration", "seconds": ceil(seconds)}} if self._tells_usage else {}
            await exchange.answer_json({"text": runs[0].text(), **usage})


class _SoundForm:
    """The format of a streamed audio response. It has the chunks of a streamed chat, with other values in `object`."""

    __slots__ = ("_head", "_tells_usage")

    def __init__(self, head: dict[str, Any], tells_usage: bool) -> None:
        self._head = head
        self._tells_usage = tells_usage

    def preface(self) -> bytes:
        return b""

    def opening(self, run: Run) -> bytes:
        return b""

    def content(self, words: bytes, tokens: int) -> bytes:
        return self._chunk(choices=[{"delta": {"content": words.decode("ascii")}}])

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        usage = run.usage()
        last = self._chunk(choices=[{"delta": {"content": words.decode("ascii")}, "finish_reason": run.finish_reason}])
        counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens, "total_tokens": usage.total_tokens}
        told = self._chunk(choices=[], usage=counts, **extra) if self._tells_usage or extra else b""
        return last + told + DONE

    def _chunk(self, **rest: Any) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(self._head | rest)


def _work(upload: _Upload, seconds: float, bytes_per_token: int) -> Work:
    tokens = max(1, ceil(seconds * TOKENS_PER_SECOND))
    size = tokens * bytes_per_token
    prompt = str(upload.fields.get("prompt", "")).encode()
    return Work(
        prompt=prompt + upload.file[-size:].rjust(size, b"\0"), max_tokens=max(1, ceil(seconds * _WORDS_PER_SECOND)), finish_reason="stop"
    )


def _seconds(file: bytes) -> float:
    try:
        with wave.open(io.BytesIO(file)) as sound:
            seconds: float = sound.getnframes() / sound.getframerate()
    except (wave.Error, EOFError, ZeroDivisionError):
        raise RequestInvalid("Invalid or unsupported audio file. The simulated engine reads WAV files only.") from None
    if seconds > _LONGEST_SECONDS:
        raise RequestInvalid(f"The audio file lasts {seconds:.0f} s; send at most {_LONGEST_SECONDS} s", "file")
    return seconds


def _asked(form: Document, field: str) -> bool:
    value = str(form.get(field, "false")).lower()
    if value not in ("true", "false", "1", "0"):
        raise unsuitable(field, form[field], "true or false")
    return value in ("true", "1")


def _form(body: bytes, content_type: bytes) -> _Upload:
    from python_multipart import parse_form
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import Field, File

    read: Document = {}
    files: dict[str, bytes] = {}

    def on_field(field: Field) -> None:
        if field.field_name is not None:
            read[field.field_name.decode("utf-8", "replace")] = (field.value or b"").decode("utf-8", "replace")

    def on_file(file: File) -> None:
        if file.field_name is not None:
            file.file_object.seek(0)
            files[file.field_name.decode("utf-8", "replace")] = file.file_object.read()

    try:
        parse_form({"Content-Type": content_type, "Content-Length": str(len(body)).encode()}, io.BytesIO(body), on_field, on_file)
    except (FormParserError, ValueError):
        raise RequestInvalid(
            "There was an error parsing the body: send multipart/form-data with a field `file`", kind="Bad Request"
        ) from None
    if "file" not in files:
        raise missing("file")
    return _Upload(fields=read, file=files["file"])
