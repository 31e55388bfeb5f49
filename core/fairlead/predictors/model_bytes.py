"""A model as bytes, to be sent between processes and stored: a checksum, a header in JSON, then the numbers as
little-endian float32. Reading a model executes nothing.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from struct import Struct
from typing import Any

import numpy as np
from xxhash import xxh3_128_digest

from fairlead.predictors.models import Evaluation, Model, Scales
from fairlead.predictors.networks import Network
from fairlead.predictors.refusals import ModelFault, ModelRefused
from fairlead.predictors.samples import Floats

FORMAT = 1
_CHECKSUM_BYTES = 16
_HEADER_LENGTH = Struct("<I")


def to_bytes(model: Model) -> bytes:
    """Return the whole model as bytes."""
    header = {
        "format": FORMAT,
        "feature_names": model.feature_names,
        "shapes": [list(part.shape) for part in _numbers(model)],
        "round": model.round,
        "samples_seen": model.samples_seen,
        "trained_on": model.trained_on,
        "evaluation": asdict(model.evaluation),
    }
    words = json.dumps(header, sort_keys=True).encode()
    body = _HEADER_LENGTH.pack(len(words)) + words + b"".join(part.astype("<f4").tobytes() for part in _numbers(model))
    return xxh3_128_digest(body) + body


def from_bytes(content: bytes) -> Model:
    """Read a model from its bytes. Raises ModelRefused for damaged bytes and for a format of another release."""
    body = content[_CHECKSUM_BYTES:]
    if len(body) < _HEADER_LENGTH.size or xxh3_128_digest(body) != content[:_CHECKSUM_BYTES]:
        raise ModelRefused(ModelFault.CORRUPT, "its checksum does not match")
    (length,) = _HEADER_LENGTH.unpack_from(body)
    try:
        header: dict[str, Any] = json.loads(body[_HEADER_LENGTH.size : _HEADER_LENGTH.size + length])
        if header["format"] != FORMAT:
            raise ModelRefused(ModelFault.CORRUPT, f"it has format {header['format']}, and this release reads {FORMAT}")
        return _model(header, body[_HEADER_LENGTH.size + length :])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelRefused(ModelFault.CORRUPT, f"its content cannot be read ({type(error).__name__})") from None


def _numbers(model: Model) -> Iterable[Floats]:
    return (*model.scales, *model.network.weights, *model.network.biases)


def _model(header: dict[str, Any], numbers: bytes) -> Model:
    values = np.frombuffer(numbers, dtype="<f4").astype(np.float32)
    parts: list[Floats] = []
    begin = 0
    for shape in header["shapes"]:
        size = int(np.prod(shape))
        parts.append(values[begin : begin + size].reshape(shape))
        begin += size
    scales, rest = parts[:4], parts[4:]
    layers = len(rest) // 2
    return Model(
        feature_names=tuple(header["feature_names"]),
        scales=Scales(*scales),
        network=Network(weights=tuple(rest[:layers]), biases=tuple(rest[layers:])),
        round=header["round"],
        samples_seen=header["samples_seen"],
        trained_on=header["trained_on"],
        evaluation=Evaluation(**header["evaluation"]),
    )
