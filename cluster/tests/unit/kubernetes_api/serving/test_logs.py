"""Reading log files from the end, whole, and while they grow or are cut."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processkube.kubernetes_api.serving.logs import POLL_SECONDS, file_log_source, log_path
from processkube.testing.examples import examples


async def read(folder: Path, tail: int | None) -> bytes:
    source = file_log_source(folder, lambda _namespace, _pod: True)
    return b"".join([block async for block in source("ns", "pod", "c", follow=False, tail_lines=tail, previous=False)])


@examples(60)
@given(lines=st.lists(st.sampled_from(["", "x", "long " * 40]), max_size=12), ends=st.booleans(), tail=st.integers(0, 14))
def test_the_last_lines_are_those_of_the_whole(tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: bool, tail: int) -> None:
    folder = tmp_path_factory.mktemp("logs")
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    log_path(folder, "ns", "pod").write_text(text)
    whole = text.splitlines(keepends=True)
    assert asyncio.run(read(folder, None)).decode() == text
    assert asyncio.run(read(folder, tail)).decode() == "".join(whole[len(whole) - min(tail, len(whole)) :])


async def test_a_pod_that_wrote_nothing_has_no_log(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await read(tmp_path, None)


async def test_following_survives_a_cut_and_ends_with_the_pod(tmp_path: Path) -> None:
    running = True
    path = log_path(tmp_path, "ns", "pod")
    source = file_log_source(tmp_path, lambda _namespace, _pod: running)
    blocks = source("ns", "pod", "c", follow=True, tail_lines=None, previous=False)
    waiting = asyncio.ensure_future(anext(blocks))
    await asyncio.sleep(POLL_SECONDS / 2)
    path.write_text("first line\n")
    assert await waiting == b"first line\n"
    path.write_text("kept\n")  # shorter: the file was cut to its last part
    waiting = asyncio.ensure_future(anext(blocks))
    await asyncio.sleep(POLL_SECONDS * 1.5)
    with path.open("a") as file:
        file.write("new\n")
    assert await waiting == b"new\n"
    running = False
    assert [block async for block in blocks] == []
