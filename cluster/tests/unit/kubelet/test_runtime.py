"""Processes of pods: reasons of their end, inherited variables, bounded logs."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from processkube.identities import ProcessIdentity
from processkube.kubelet.node import claim_addresses
from processkube.kubelet.runtime import Exit, ProcessRuntime
from processkube.testing.waiting import PATIENCE_SECONDS


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("raise SystemExit(3)", Exit(exit_code=3, signal=0)),
        ("import os; os.kill(os.getpid(), 9)", Exit(exit_code=0, signal=9)),
        ("pass", Exit(exit_code=0, signal=0)),
    ],
)
async def test_an_ending_is_told_as_exit_code_or_signal(code: str, ending: Exit, tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path)
    assert await runtime.wait(runtime.start(python(code), {}, tmp_path / "x.log")) == ending


async def test_nobody_knows_how_a_process_of_an_earlier_kubelet_ended(tmp_path: Path) -> None:
    ending = await ProcessRuntime(tmp_path).wait(ProcessIdentity(pid=os.getpid(), started_ticks=1))
    assert ending.exit_code == 255
    assert "earlier kubelet" in ending.message


async def test_a_container_sees_its_variables_and_none_of_the_sandboxs_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_API_TOKEN", "secret")
    monkeypatch.setenv("MARK", "here")
    runtime = ProcessRuntime(tmp_path, inherited=("MARK", "MISSING"))
    code = "import os; print(os.environ['POD_IP'], 'FAIRLEAD_API_TOKEN' in os.environ, 'PATH' in os.environ, os.environ['MARK'])"
    await runtime.wait(runtime.start(python(code), {"POD_IP": "127.40.0.1"}, tmp_path / "x.log"))
    assert (tmp_path / "x.log").read_text() == "127.40.0.1 False True here\n"


async def test_a_log_that_grew_too_long_keeps_its_last_part_while_it_is_written(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path, log_limit_bytes=20_000, log_kept_bytes=5_000)
    log = runtime.log_path("default", "chat-b1")
    lines = "for n in range(3000):\n    sys.stdout.write(f'line {n}\\n')\n"
    pause = "sys.stdout.flush()\nwhile os.fstat(1).st_size > 20_000: time.sleep(0.01)\n"  # until the log was cut
    code = f"import os, sys, time\n{lines}{pause}print('a pause')\nprint('the end')"
    bounding = asyncio.create_task(runtime.bound_logs(every_seconds=0.02))
    await runtime.wait(runtime.start(python(code), {}, log))
    bounding.cancel()
    assert log.stat().st_size <= 20_000
    assert log.read_text().splitlines()[-2:] == ["a pause", "the end"]
    assert "\0" not in log.read_text()


async def test_what_a_process_writes_while_its_log_is_cut_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ProcessRuntime(tmp_path, log_limit_bytes=20_000, log_kept_bytes=5_000)
    log = runtime.log_path("default", "chat-b1")
    log.write_text("".join(f"line {n}\n" for n in range(3000)))
    copy, said = os.pwrite, ["meanwhile"]

    def copy_while_it_writes(descriptor: int, part: bytes, offset: int) -> int:
        with log.open("a") as process:
            process.writelines(f"{said.pop()}\n" for _ in said[:])
        return copy(descriptor, part, offset)

    monkeypatch.setattr(os, "pwrite", copy_while_it_writes)
    bounding = asyncio.create_task(runtime.bound_logs(every_seconds=0.01))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while log.stat().st_size > 5_100:
            await asyncio.sleep(0.01)
    bounding.cancel()
    lines = log.read_text().splitlines()
    assert lines == [*(f"line {n}" for n in range(3001 - len(lines), 3000)), "meanwhile"]
    assert len(lines) > 400


async def test_two_kubelets_on_one_machine_claim_different_addresses() -> None:
    first, first_server = await claim_addresses(90)
    second, second_server = await claim_addresses(first)
    async with first_server, second_server:
        assert first != second
