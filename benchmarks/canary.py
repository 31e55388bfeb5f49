"""Measures the judge of canaries: how often it stops a revision that is not worse, and after how many requests it stops
a revision that is slower.

    python -m benchmarks.canary [--runs 200] [--requests 10000] [--share 0.25] [--slower 0,5,10,30] [--seed 1]
        [--trace FILE | --generate coding-agents]

Each run is a synthetic pool in virtual time. A share of its sessions, `--share`, goes to the canary. Turns have growing
prompts, the canary's cache is cold at first, and the load affects both arms. Each session differs from the mean by
about 5 % in its latencies and in the lengths of prompts and answers. Each request has noise: 25 % in its time to first
token, 8 % in its time per token. Latencies of the canary are longer by `--slower` per cent. The judge looks after every
session, as often as it can. The run continues to the last request even after the verdict to go on, so that a stop at
any look counts. No engine runs, so figures are the same on every machine.

Sessions have one to eleven turns. With `--trace` or `--generate`, each session is drawn at random from the recorded or
generated sessions. It then has the turns, prompts and answers of the drawn session, the blocks that an engine holds
after the earlier turns, and the blocks that the first turn shares with other sessions.

Prints one line per slowness: the share of stopped runs, with the upper end of its 95 % interval (Clopper and Pearson
1934, by bisection). For the stopped runs it adds the median and the 90th percentile of requests before the stop, of
both arms and of the canary, and the median number of the canary's sessions that counted.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from math import comb, exp
from random import Random
from typing import NamedTuple

from benchmarks.command_line import a_file, above_zero, count

from fairlead.canaries.judging import Judge
from fairlead.canaries.verdicts import CanaryRules, StepVerdict
from fairlead.reports.canaries import CanarySample
from fairlead.tables import PoolKey
from fairlead_simulator.errors import SimulatorError
from fairlead_simulator.traces.rows import BLOCK_TOKENS, TraceRow, read_trace
from fairlead_simulator.workloads.kinds import KINDS

_POOL = PoolKey(namespace="bench", name="canary")
_TURNS = 6
_SPEED = 6250.0
_AT_ONCE = 40
WARMING_SECONDS = 60.0
GENERATED = 3000
"""Number of requests that `--generate` generates."""


class Turn(NamedTuple):
    """A turn of a recorded session, with its lengths in tokens.

    `kept` is the number of tokens of its prompt that an engine holds after it has served the turn before. For a first
    turn it is the number of tokens that the prompt has in common with other sessions.
    """

    prompt: int
    kept: int
    answer: int


Recorded = Sequence[Turn]


def recorded(rows: Iterable[TraceRow]) -> list[Recorded]:
    """Return the sessions of a trace. Raises SimulatorError for a trace without sessions."""
    by_session: dict[str, list[TraceRow]] = {}
    for number, row in enumerate(rows, 1):
        if row.session is None:
            raise SimulatorError(f"request {number} has no session_id; give a trace in which every request has one")
        by_session.setdefault(row.session, []).append(row)
    shared = Counter(block for turns in by_session.values() for block in {block for row in turns for block in row.hash_ids})
    return [tuple(_turns(turns, shared)) for turns in by_session.values()]


def _turns(rows: Sequence[TraceRow], shared: Counter[int]) -> Iterator[Turn]:
    held = {block for block in rows[0].hash_ids if shared[block] > 1}
    for row in rows:
        kept = sum(1 for _ in takewhile(held.__contains__, row.hash_ids[: row.full_blocks]))
        yield Turn(row.input_length, kept * BLOCK_TOKENS, row.output_length)
        held.update(row.hash_ids[: row.full_blocks])


def traffic(random: Random, requests: int, share: float, slower: float, known: Sequence[Recorded] = ()) -> Iterator[CanarySample]:
    """Yield requests in order of time, from sessions of several turns. All turns of a session go to the same arm.

    If `known` is not empty, each session has the turns of a random session of `known`.
    """
    sessions = [_begun(random, share, number, known) for number in range(_AT_ONCE)]
    now, load, born = 0.0, 0.0, len(sessions)
    for _ in range(requests):
        now += random.expovariate(10.0)
        load = 0.995 * load + random.gauss(0.0, 0.02)
        slot = random.randrange(len(sessions))
        yield sessions[slot].turn(random, now, load, slower)
        if sessions[slot].left == 0:
            sessions[slot] = _begun(random, share, born, known)
            born += 1


def _begun(random: Random, share: float, number: int, known: Sequence[Recorded]) -> _Session:
    return _RecordedSession(random, share, number, random.choice(known)) if known else _Session(random, share, number)


class _Session:
    """A conversation with its own habits: factors of its latencies and lengths."""

    def __init__(self, random: Random, share: float, number: int) -> None:
        self._name = f"{number:x}"
        self._canary = random.random() < share
        self._context = int(random.lognormvariate(7.0, 0.8))
        self._cached = 0
        self._habit = random.gauss(0.0, 0.05)
        self._answers = random.lognormvariate(5.0, 0.6)
        self.left = random.randint(1, 2 * _TURNS - 1)

    def turn(self, random: Random, now: float, load: float, slower: float) -> CanarySample:
        """Return the request of the session's next turn."""
        self.left -= 1
        cold = self._canary and now < WARMING_SECONDS
        cached = min(self._context, self._kept(cold)) if random.random() > 0.03 else 0
        decoding = max(0, int(random.gauss(8.0 + 8.0 * load, 3.0)))
        factor = (1.0 + slower if self._canary else 1.0) * exp(load + self._habit)
        output = max(1, int(self._answers * random.lognormvariate(0.0, 0.5)))
        sample = CanarySample(
            pool=_POOL,
            at=now,
            step="0",
            session=self._name,
            canary=self._canary,
            prompt_tokens=self._context,
            cached_tokens=cached,
            decoding=decoding,
            ttft_seconds=(0.03 + (self._context - cached) / _SPEED) * (1 + 0.02 * decoding) * factor * random.lognormvariate(0.0, 0.25),
            tpot_seconds=0.012 * (1 + 0.03 * decoding) * factor * random.lognormvariate(0.0, 0.08),
            output_tokens=output,
            failed=random.random() < 0.005,
        )
        self._go_on(random, output)
        return sample

    def _kept(self, cold: bool) -> int:
        """Return the tokens of the prompt that the session's engine holds."""
        return max(self._cached, 0 if cold else 256)

    def _go_on(self, random: Random, output: int) -> None:
        """Prepare the next turn, whose prompt has the former prompt and answer."""
        self._cached, self._context = self._context, self._context + output + int(random.lognormvariate(5.0, 0.7))


class _RecordedSession(_Session):
    """A conversation with the lengths of the turns of a recorded session."""

    def __init__(self, random: Random, share: float, number: int, turns: Recorded) -> None:
        super().__init__(random, share, number)
        self._turns = turns
        self.left = len(turns)
        self._begin()

    def _begin(self) -> None:
        turn = self._turns[-self.left]
        self._context, self._answers = turn.prompt, float(turn.answer)

    def _kept(self, cold: bool) -> int:
        place = len(self._turns) - 1 - self.left
        return 0 if cold and place == 0 else self._turns[place].kept

    def _go_on(self, random: Random, output: int) -> None:
        if self.left:
            self._begin()


@dataclass(frozen=True)
class Run:
    """The result of a run.

    `stopped` is None if the judge never stopped the canary. Otherwise it has three numbers at the stop: the requests of
    both arms, the requests of the canary, and the canary's sessions that counted. `went_on` is the number of requests
    until the first verdict to go on; None if there was no such verdict.
    """

    stopped: tuple[int, int, int] | None
    went_on: int | None


def one_run(seed: int, requests: int, share: float, slower: float, known: Sequence[Recorded] = ()) -> Run:
    """Judge a run after every session that counts, and return its result."""
    judge, seen, canary, went_on = Judge(CanaryRules(warming_seconds=WARMING_SECONDS), 0.0), 0, 0, None
    looked = 0
    for sample in traffic(Random(seed), requests, share, slower, known):
        judge.add(sample)
        seen, canary = seen + 1, canary + sample.canary
        if judge.pairs == looked:
            continue
        looked = judge.pairs
        judgement = judge.judgement()
        verdict = judgement.verdict
        if verdict is StepVerdict.BACK:
            return Run((seen, canary, judgement.canary_sessions), went_on)
        went_on = seen if verdict is StepVerdict.GO and went_on is None else went_on
    return Run(None, went_on)


def upper(stopped: int, runs: int) -> float:
    """Return the upper end of the exact 95 % interval of a share."""
    low, high = stopped / runs, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        tail = sum(comb(runs, k) * middle**k * (1 - middle) ** (runs - k) for k in range(stopped + 1))
        low, high = (middle, high) if tail > 0.025 else (low, middle)
    return high


def _quantile(values: list[int], share: float) -> str:
    return str(sorted(values)[min(len(values) - 1, int(share * len(values)))]) if values else "-"


def _line(slower: float, runs: list[Run]) -> str:
    stops = [run.stopped for run in runs if run.stopped is not None]
    everything, canary, sessions = ([one[place] for one in stops] for place in range(3))
    on = [run.went_on for run in runs if run.went_on is not None]
    figures = f"{_quantile(everything, 0.5):>7} {_quantile(everything, 0.9):>7} {_quantile(canary, 0.5):>7} {_quantile(canary, 0.9):>7}"
    figures += f" {_quantile(sessions, 0.5):>10}"
    share, most = 100 * len(stops) / len(runs), 100 * upper(len(stops), len(runs))
    return f"{100 * slower:5.0f} % {share:7.1f} % {most:6.1f} % {figures} {100 * len(on) / len(runs):7.0f} % {_quantile(on, 0.5):>7}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=count, default=200)
    parser.add_argument("--requests", type=count, default=10_000, help="requests of a run, of both arms")
    parser.add_argument("--share", type=above_zero, default=0.25, help="share of sessions on the canary")
    parser.add_argument(
        "--slower",
        type=_percentages,
        default=(0.0, 5.0, 10.0, 30.0),
        help="how much slower the canary is, in per cent; values separated by commas",
    )
    parser.add_argument("--seed", type=count, default=1)
    turns = parser.add_mutually_exclusive_group()
    turns.add_argument("--trace", type=a_file, help="trace with session_id from which sessions are drawn")
    turns.add_argument("--generate", choices=KINDS, help="draw sessions from a generated trace of this kind")
    asked = parser.parse_args()
    rows = (
        read_trace(asked.trace) if asked.trace else islice(KINDS[asked.generate].rows(None, None, 0), GENERATED) if asked.generate else ()
    )
    try:
        asked.known = recorded(rows)
    except SimulatorError as error:
        parser.error(str(error))
    return asked


def _percentages(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(one) for one in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers; write numbers with commas, such as 0,5,10") from None


def main() -> None:
    """Print a line per slowness."""
    asked = _arguments()
    print("slower  stopped   at most  requests(50,90 %)  of the canary   sessions  went on  requests(50 %)")
    for slower in asked.slower:
        seeds = range(asked.seed, asked.seed + asked.runs)
        print(_line(slower / 100, [one_run(seed, asked.requests, asked.share, slower / 100, asked.known) for seed in seeds]), flush=True)


if __name__ == "__main__":
    main()
