"""Samples: the features of an instance and a request when the request was placed, and the TTFT that resulted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Indexes = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Rows of features [n, d] and the TTFT of each in seconds [n], oldest first."""

    features: Floats
    ttft_seconds: Floats

    def __len__(self) -> int:
        return len(self.ttft_seconds)

    @staticmethod
    def none(width: int) -> "Samples":
        """Return an empty set of samples with `width` features."""
        return Samples(features=np.zeros((0, width), dtype=np.float32), ttft_seconds=np.zeros(0, dtype=np.float32))

    @staticmethod
    def of(features: Sequence[Floats], ttft_seconds: Sequence[float]) -> "Samples":
        """Return samples made from at least one row."""
        return Samples(features=np.stack(features).astype(np.float32), ttft_seconds=np.array(ttft_seconds, dtype=np.float32))

    def at(self, rows: Indexes | slice) -> "Samples":
        """Return the samples at these row numbers."""
        return Samples(features=self.features[rows], ttft_seconds=self.ttft_seconds[rows])

    def followed_by(self, others: "Samples") -> "Samples":
        """Return these samples, followed by the samples of `others`."""
        return Samples(
            features=np.concatenate((self.features, others.features)),
            ttft_seconds=np.concatenate((self.ttft_seconds, others.ttft_seconds)),
        )

    def below(self, seconds: float) -> "Samples":
        """Return the samples with a TTFT of at most this many seconds."""
        return self.at(np.flatnonzero(self.ttft_seconds <= seconds))
