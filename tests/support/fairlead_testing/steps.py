"""Measures the work of a parser without a clock: the executed lines of Python, and the bytes that calls into C look at.

Lines are counted by `sys.settrace`, which does not see the work of C code. So a parser gets bytes objects that count
how many bytes its calls look at. In its modules, the names `bytes` and `bytearray` and the regular expressions are
replaced by ones that count. The work of compiled decoders (msgspec, orjson, llhttp) is not counted, because they pass
over their bytes once.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import pytest

LINE = 32
"""The number of bytes that count as much as one executed line of Python."""


class Work:
    """The work since the last `reset`, in bytes looked at."""

    done = 0


def _looked(size: int) -> None:
    Work.done += max(1, size)


class CountedBytes(bytes):
    """Bytes whose methods count the bytes that they look at. Slices and parts of them count too."""

    def __new__(cls, *given: Any) -> "CountedBytes":
        made = super().__new__(cls, *given)
        _looked(len(made))
        return made

    def __add__(self, other: Any) -> "CountedBytes":
        return CountedBytes(bytes.__add__(self, other))

    def __radd__(self, other: Any) -> "CountedBytes":
        return CountedBytes(bytes.__add__(bytes(other), self))

    def __getitem__(self, place: Any) -> Any:
        return CountedBytes(bytes.__getitem__(self, place)) if isinstance(place, slice) else bytes.__getitem__(self, place)

    def __contains__(self, part: Any) -> bool:
        return self.find(part) >= 0

    def find(self, *given: Any) -> int:
        return _found(bytes.find, self, given)

    def rfind(self, *given: Any) -> int:
        start, end, _ = slice(*given[1:3] if len(given) > 2 else (given[1] if len(given) > 1 else 0, None)).indices(len(self))
        found = bytes.rfind(self, *given)
        _looked(end - (start if found < 0 else found))
        return found

    def count(self, *given: Any) -> int:
        start, end, _ = slice(*given[1:3] if len(given) > 2 else (given[1] if len(given) > 1 else 0, None)).indices(len(self))
        _looked(end - start)
        return bytes.count(self, *given)

    def split(self, *given: Any, **named: Any) -> list[bytes]:
        return [CountedBytes(part) for part in bytes.split(self, *given, **named)]

    def strip(self, *given: Any) -> bytes:
        return CountedBytes(bytes.strip(self, *given))

    def partition(self, mark: Any) -> tuple[bytes, bytes, bytes]:
        first, mark, last = bytes.partition(self, mark)
        return CountedBytes(first), mark, CountedBytes(last)

    def rpartition(self, mark: Any) -> tuple[bytes, bytes, bytes]:
        first, mark, last = bytes.rpartition(self, mark)
        return CountedBytes(first), mark, CountedBytes(last)


class CountedArray(bytearray):
    """A `bytearray` that counts as `CountedBytes` does."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        _looked(len(self))

    def __iadd__(self, other: Any) -> "CountedArray":  # type: ignore[misc]  # as bytearray's
        _looked(len(other))
        super().__iadd__(other)
        return self

    def __bytes__(self) -> bytes:
        return CountedBytes(memoryview(self))

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return CountedArray(found) if isinstance(place, slice) else found

    def __delitem__(self, place: Any) -> None:
        super().__delitem__(place)

    def __contains__(self, part: Any) -> bool:
        return self.find(part) >= 0

    def find(self, *given: Any) -> int:
        return _found(bytearray.find, self, given)


def _found(find: Callable[..., int], text: Any, given: tuple[Any, ...]) -> int:
    start, end, _ = slice(*given[1:3] if len(given) > 2 else (given[1] if len(given) > 1 else 0, None)).indices(len(text))
    found = find(text, *given)
    _looked((end if found < 0 else found) - start)
    return found


class CountedPattern:
    """A regular expression that counts the bytes that it looks at."""

    def __init__(self, pattern: "re.Pattern[Any]") -> None:
        self._pattern = pattern

    def search(self, text: Any, *bounds: int) -> Any:
        return self._look(self._pattern.search(text, *bounds), text, *bounds)

    def match(self, text: Any, *bounds: int) -> Any:
        found = self._pattern.match(text, *bounds)
        _looked(1 if found is None else found.end() - found.start())
        return found

    def fullmatch(self, text: Any, *bounds: int) -> Any:
        return self._look(self._pattern.fullmatch(text, *bounds), text, *bounds)

    def __getattr__(self, name: str) -> Any:
        def looked(text: Any, *given: Any) -> Any:
            _looked(len(text))
            return getattr(self._pattern, name)(text, *given)

        return looked

    def _look(self, found: Any, text: Any, start: int = 0, end: int = sys.maxsize) -> Any:
        _looked((min(end, len(text)) if found is None else found.end()) - start)
        return found


@contextmanager
def counted(*modules: ModuleType) -> Iterator[None]:
    """Replace names and patterns in these modules by ones that count, until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            for name, value in tuple(vars(module).items()):
                if isinstance(value, re.Pattern):
                    patch.setattr(module, name, CountedPattern(value))
            patch.setattr(module, "bytes", CountedBytes, raising=False)
            patch.setattr(module, "bytearray", CountedArray, raising=False)
        yield


def work_of(parse: Callable[[], object]) -> int:
    """Return the work of a call, in bytes looked at."""
    before = Work.done
    files = (__file__,)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename in files:
            return None
        if event == "line":
            Work.done += LINE
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        parse()
    finally:
        sys.settrace(earlier)
    return Work.done - before


def assert_linear(
    parse: Callable[[bytes], object], make: Callable[[int], bytes], size: int, *modules: ModuleType, most: float = 2.5
) -> None:
    """Assert that twice as many bytes take at most `most` times the work."""
    with counted(*modules):
        parse(CountedBytes(make(size)))  # what is made once
        once = work_of(lambda: parse(CountedBytes(make(size))))
        twice = work_of(lambda: parse(CountedBytes(make(2 * size))))
    assert twice <= most * once, f"{size} bytes take {once}, twice as many take {twice}: {twice / once:.2f} times as much"
