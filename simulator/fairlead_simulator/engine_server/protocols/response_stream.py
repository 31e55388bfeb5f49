"""The events of a streamed response, in the order the official client builds a response from."""

from collections.abc import Callable
from typing import Any

import orjson

from fairlead_simulator.engine_server.work import Run


class ResponseForm:
    """One message of one text part. `finish` gives the response at the run's end.

    The first two events are sent before the engine has made a token: they say that the request was taken, not that it
    is being answered.
    """

    def __init__(self, document: dict[str, Any], message_id: str, finish: Callable[[Run], dict[str, Any]]) -> None:
        self._document = document
        self._message_id = message_id
        self._finish = finish
        self._sequence = 0
        self._place = {"content_index": 0, "item_id": message_id, "output_index": 0}

    def preface(self) -> bytes:
        return self._event("created", {"response": self._document}) + self._event("in_progress", {"response": self._document})

    def opening(self, run: Run) -> bytes:
        item = self._message([], "in_progress")
        part: dict[str, Any] = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        added = self._event("output_item.added", {"item": item, "output_index": 0})
        return added + self._event("content_part.added", {**self._place, "part": part})

    def content(self, words: bytes, tokens: int) -> bytes:
        return self._event("output_text.delta", {**self._place, "delta": words.decode("ascii"), "logprobs": []})

    def closing(self, words: bytes, run: Run, extra: dict[str, Any]) -> bytes:
        text = run.text()
        part: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        return b"".join(
            (
                self.content(words, 0) if words else b"",
                self._event("output_text.done", {**self._place, "logprobs": [], "text": text}),
                self._event("content_part.done", {**self._place, "part": part}),
                self._event("output_item.done", {"item": self._message([part], "completed"), "output_index": 0}),
                self._event("completed", {"response": self._finish(run), **extra}),
            )
        )

    def _message(self, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
        return {"id": self._message_id, "content": content, "role": "assistant", "status": status, "type": "message", "phase": None}

    def _event(self, kind: str, document: dict[str, Any]) -> bytes:
        told = dict(sorted({**document, "sequence_number": self._sequence, "type": f"response.{kind}"}.items()))
        self._sequence += 1
        return b"event: response.%b\ndata: %b\n\n" % (kind.encode("ascii"), orjson.dumps(told))
