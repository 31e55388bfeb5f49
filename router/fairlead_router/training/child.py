"""The process of the trainer: `python -m fairlead_router.training.child`. A router starts it, and it ends with the
router.

It reads lessons from standard input, writes the result of each lesson to standard output, and ends when its input ends.
"""

import os
import signal
import sys
import time
from typing import BinaryIO

import msgspec

from fairlead.predictors.learners import Learner
from fairlead.predictors.model_bytes import to_bytes
from fairlead_router.training.frames import LENGTH, Learnt, Lesson, framed

SEED = 1
NICENESS = 10


def teach(lessons: BinaryIO, answers: BinaryIO) -> None:
    """Train on each lesson and write its result, until the input ends. A pool whose settings have changed gets a new
    learner.
    """
    learners: dict[str, Learner] = {}
    decoder = msgspec.msgpack.Decoder(Lesson)
    while len(head := lessons.read(LENGTH.size)) == LENGTH.size:
        lesson = decoder.decode(lessons.read(LENGTH.unpack(head)[0]))
        learner = learners.get(lesson.pool)
        if learner is None or learner.settings != lesson.settings:
            learner = learners[lesson.pool] = Learner(lesson.settings, SEED)
        learner.add(lesson.samples)
        began = time.monotonic()
        model = to_bytes(learner.train()) if learner.due else None
        answers.write(framed(Learnt(model=model, seconds=time.monotonic() - began)))
        answers.flush()


def main() -> None:
    """Train at low priority. The process ends when the router ends, because its input is closed then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    teach(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
