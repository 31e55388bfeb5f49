"""The command line of the package, which its docstring describes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.api_processes import ApiProcess
from benchmarks.command_line import above_zero, count, end_everything_when_ended, zero_or_more
from benchmarks.crashes import __doc__ as package_doc
from benchmarks.crashes.facts import INSTANCES, POOL, Sent, missing_or_doubled, rolled_up
from benchmarks.crashes.planning import Planning, half_applied

from fairlead_api.infra.upgrading import upgrade
from fairlead_client.client import ControlApi
from fairlead_client.internal import SystemApi
from fairlead_testing.builders.record_facts import contradictions
from fairlead_testing.running.api import SECRETS, a_state, an_instance
from fairlead_testing.running.operator_process import POOLS, running_kubernetes_api
from fairlead_testing.running.postgres import PostgresProcess, plain
from fairlead_testing.running.strict_system_api import taken
from processkube.testing.clients import KubernetesClient

ROUTERS = 4
OLD_SECONDS = 3.0
"""Maximum age in seconds of an unsent report. The backlog counts as gone when no router has an older unsent report."""
BACKLOG_SECONDS = 60.0
SERVER = {"max_connections": "60", "shared_buffers": "256MB"}
SPEC: dict[str, Any] = {"model": "tiny", "replicas": 3, "engine": {"type": "simulated"}, "routing": {"policy": "fairlead"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault. The function `hurt` causes the fault and returns when the fault is over. A process that it killed may
    still be starting then.
    """

    name: str
    hurt: Callable[[], None]


class Reporting:
    """The reporting processes, and the newest status line of each."""

    def __init__(self, folder: Path, urls: list[str], rate: float, reports: int, tick: float) -> None:
        self.told: list[dict[str, Any]] = [{} for _ in range(ROUTERS)]
        self.done: list[dict[str, Any]] = [{} for _ in range(ROUTERS)]
        self._processes = []
        for number in range(ROUTERS):
            order = urls[number % len(urls) :] + urls[: number % len(urls)]
            command = [
                *(
                    sys.executable,
                    "-m",
                    "benchmarks.crashes.reporting_router",
                    f"router-{number}",
                    ",".join(order),
                    str(folder / f"spool-{number}"),
                ),
                *(
                    "--token",
                    SECRETS["system-router"],
                    "--rate",
                    str(rate / ROUTERS),
                    "--reports",
                    str(-(-reports // ROUTERS)),
                    "--tick",
                    str(tick),
                ),
            ]
            log = (folder / f"router-{number}.log").open("wb")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            self._processes.append(process)
            threading.Thread(target=self._listen, args=(number, process), daemon=True).start()

    def _listen(self, number: int, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            told = json.loads(line)
            (self.done if told.get("done") else self.told)[number] = told

    @property
    def oldest_seconds(self) -> float:
        return max((float(told.get("oldest_seconds", 0.0)) for told in self._still_telling()), default=0.0)

    @property
    def batches(self) -> int:
        return sum(int(told.get("batches", 0)) for told in self._still_telling())

    def _still_telling(self) -> list[dict[str, Any]]:
        """Return the newest status lines of the routers that are not done. A router is done when all its records are
        acknowledged.
        """
        return [told for told, done in zip(self.told, self.done, strict=True) if not done]

    @property
    def ended(self) -> bool:
        if any(process.poll() not in {None, 0} for process in self._processes):
            raise SystemExit("a router's reporting ended with an error; see its log")
        return all(self.done)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(30)


def faults(postgres: PostgresProcess, apis: list[ApiProcess], pause: float) -> Iterator[Fault]:
    def kill_postgres() -> None:
        postgres.kill()
        postgres.start()

    def pause_postgres() -> None:
        postgres.freeze()
        time.sleep(pause)
        postgres.thaw()

    yield Fault(name="Postgres killed", hurt=kill_postgres)
    yield Fault(name=f"Postgres paused {pause:g} s", hurt=pause_postgres)
    for number, api in enumerate(apis):

        def kill_api(api: ApiProcess = api) -> None:
            api.kill()
            api.start()

        def pause_api(api: ApiProcess = api) -> None:
            api.pause()
            time.sleep(pause)
            api.resume()

        yield Fault(name=f"API {number + 1} killed", hurt=kill_api)
        yield Fault(name=f"API {number + 1} paused {pause:g} s", hurt=pause_api)


def say(begun: float, words: str) -> None:
    print(f"{time.monotonic() - begun:6.0f} s  {words}", flush=True)


async def prepared(urls: list[str]) -> None:
    """Prepare the API: report the pool and its instances to it, as the operator does."""
    async with SystemApi(urls, SECRETS["system-operator"], timeout_seconds=30) as api:
        state = a_state(*(an_instance(name) for name in INSTANCES), spec=SPEC)
        taken(await api.put_state(POOL, state))


def run(folder: Path, given: argparse.Namespace, kubeconfig: str) -> dict[str, bool]:
    """Run everything, and return for each promise whether it was kept."""
    begun = time.monotonic()
    postgres = PostgresProcess(folder, SERVER)
    postgres.start()
    apis = [ApiProcess(postgres.url, folder / f"api-{number}.log", {"KUBECONFIG": kubeconfig}) for number in range(2)]
    urls = [api.url for api in apis]
    recoveries: dict[str, float] = {}
    missed: list[str] = []
    waited = 0
    reporting: Reporting | None = None
    try:
        upgrade(postgres.url)
        made = KubernetesClient.of(kubeconfig).call(
            "POST", POOLS, {"apiVersion": "fairlead.dev/v1alpha1", "kind": "InferencePool", "metadata": {"name": POOL.name}, "spec": SPEC}
        )
        for api in apis:
            api.start()
        for api in apis:
            api.until_ready()
        asyncio.run(prepared(urls))
        planning, stop = Planning(urls, SECRETS["admin"]), asyncio.Event()
        loop = asyncio.new_event_loop()
        planner = threading.Thread(target=lambda: loop.run_until_complete(planning.go_on(stop)), daemon=True)
        planner.start()
        reporting = Reporting(folder, urls, given.rate, given.reports, given.tick)
        say(begun, f"{ROUTERS} routers report, {given.rate:g} decisions a second in all")
        time.sleep(given.calm)
        for fault in faults(postgres, apis, given.pause):
            fault.hurt()
            if all(reporting.done):
                missed.append(fault.name)
            over, most = time.monotonic(), reporting.batches
            while reporting.oldest_seconds > OLD_SECONDS or time.monotonic() - over < 1.0:
                most = max(most, reporting.batches)
                if time.monotonic() - over > 10 * BACKLOG_SECONDS:
                    break
                time.sleep(0.2)
            recoveries[fault.name] = time.monotonic() - over
            waited = max(waited, most)
            say(begun, f"{fault.name}: {most} reports waited, none older than {OLD_SECONDS:g} s {recoveries[fault.name]:.1f} s later")
            for api in apis:
                api.until_ready()
            time.sleep(given.calm)
        while not reporting.ended:
            time.sleep(0.5)
        if not planner.is_alive():
            raise SystemExit("the planning ended with an error, so the outcome of the plans is not known")
        loop.call_soon_threadsafe(stop.set)
        planner.join(60)
        say(begun, f"{planning.applied} plans applied, {planning.lost_answers} sent again; refused: {dict(planning.refusals)}")
        sent = [
            Sent(router=f"router-{number}", **{name: told[name] for name in ("ticks", "decisions", "seconds", "reports")})
            for number, told in enumerate(reporting.done)
        ]
        kept = {name: sum(told[name] for told in reporting.done) for name in ("left", "dropped", "aside")}
        total = sum(one.reports for one in sent)
        say(
            begun,
            f"{total:,} reports with {sum(one.decisions for one in sent):,} decisions in {reporting.done[0]['produced_seconds']:.0f} s",
        )
        url = plain(postgres.url)
        deadline = time.monotonic() + 120
        while len(set(rolled_up(url))) > 1 and time.monotonic() < deadline:
            time.sleep(1)
        wrong = missing_or_doubled(url, sent)
        broken = contradictions(postgres.url)
        half = half_applied(url, kubeconfig, made["metadata"]["generation"])
        loads, minutes = rolled_up(url)
        intact = asyncio.run(verified(urls))
    finally:
        if reporting is not None:
            reporting.stop()
        for api in apis:
            api.resume()
            api.kill()
        with contextlib.suppress(ProcessLookupError):  # a child that ended between being listed and being woken
            postgres.thaw()
        postgres.stop()
    slowest = max(recoveries, key=lambda name: recoveries[name])
    return {
        f"every one of {total:,} reports is stored, and every fact in them once: {wrong or 'none missing, none twice'}": not wrong,
        f"reports came while each of {len(recoveries)} faults struck{_but(missed)}": not missed,
        f"nothing left, dropped or set aside at the routers: {kept}": not any(kept.values()),
        f"the record does not contradict itself: {broken or 'no contradiction'}": not broken,
        f"no plan half applied ({planning.applied} applied): {half or 'object, plans and audit log agree'}": not half
        and planning.applied > 0,
        f"the audit log's chain is whole: {intact}": intact,
        f"requests in load samples {loads:,}, in their rollups {minutes:,}": loads == minutes > 0,
        f"a backlog is gone within {BACKLOG_SECONDS:g} s: the slowest after {recoveries[slowest]:.1f} s ({slowest}; at most {waited:,} reports waited)": (
            recoveries[slowest] <= BACKLOG_SECONDS
        ),
    }


def _but(missed: list[str]) -> str:
    return f", but for {', '.join(missed)}: give more --reports" if missed else ""


async def verified(urls: list[str]) -> bool:
    async with ControlApi(urls, SECRETS["admin"], timeout_seconds=60) as api:
        return (await api.audit_verification()).intact


def main() -> int:
    """Run and print everything, and return 0 if all promises were kept, otherwise 1."""
    reading = argparse.ArgumentParser(
        prog="python -m benchmarks.crashes", description=package_doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    reading.add_argument("--reports", type=count, default=50_000, help="minimum number of reports of all routers together")
    reading.add_argument("--rate", type=above_zero, default=500.0, help="decisions per second of all routers together")
    reading.add_argument(
        "--tick", type=above_zero, default=0.1, help="seconds between two collections of a router, which makes two reports"
    )
    reading.add_argument("--pause", type=zero_or_more, default=20.0, help="seconds for which a process is paused")
    reading.add_argument("--calm", type=zero_or_more, default=15.0, help="seconds between two faults")
    reading.add_argument("--directory", type=Path, help="folder for data and logs, with a short path; without this option, a temporary one")
    given = reading.parse_args()
    end_everything_when_ended()
    with tempfile.TemporaryDirectory(prefix="fl-crash-") as scratch:
        folder = given.directory or Path(scratch)
        (folder / "kubernetes").mkdir(parents=True, exist_ok=True)
        with running_kubernetes_api(folder / "kubernetes") as kubeconfig:
            held = run(folder, given, kubeconfig)
    for words, good in held.items():
        print(f"{'yes' if good else 'NO ':4}{words}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
