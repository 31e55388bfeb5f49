"""The messages between a router and its trainer over pipes. Each message is a length followed by MessagePack."""

from struct import Struct

import msgspec
import numpy as np

from fairlead.predictors.learners import LearnerSettings
from fairlead.predictors.samples import Samples

LENGTH = Struct("<I")


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """New samples of one pool: rows of features, and the TTFT in seconds of each row, both as float32. The trainer
    replies with a `Learnt`.
    """

    pool: str
    settings: LearnerSettings
    features: bytes
    ttft_seconds: bytes

    @staticmethod
    def of(pool: str, settings: LearnerSettings, samples: Samples) -> "Lesson":
        """Return a message with these samples."""
        return Lesson(
            pool=pool,
            settings=settings,
            features=samples.features.astype("<f4").tobytes(),
            ttft_seconds=samples.ttft_seconds.astype("<f4").tobytes(),
        )

    @property
    def samples(self) -> Samples:
        """The samples in the message."""
        features = np.frombuffer(self.features, dtype="<f4").astype(np.float32)
        return Samples(
            features=features.reshape(-1, len(self.settings.feature_names)),
            ttft_seconds=np.frombuffer(self.ttft_seconds, dtype="<f4").astype(np.float32),
        )


class Learnt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a lesson. `model`: the trained model as bytes; None if there were not enough samples for a
    training. `seconds`: the duration of the training.
    """

    model: bytes | None = None
    seconds: float = 0.0


def framed(message: Lesson | Learnt) -> bytes:
    """Return the bytes of the message, with its length before it."""
    content = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(content)) + content
