"""How a simulated pool scales itself, as a JSON file with the sections of a pool's spec."""

from pathlib import Path

import orjson

from fairlead.errors import InvalidInput
from fairlead.scaling.specs import RatioMode
from fairlead.schemas.reading import read
from fairlead_simulator.errors import ScalingInvalid
from fairlead_simulator.simulation.autoscaling import SimulatedScaling


def read_scaling(path: Path, *, split: bool) -> SimulatedScaling:
    """The rules in a file, for a pool that is `split` into prefill and decode instances or not.

    Raises ScalingInvalid.
    """
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ScalingInvalid(f"{path}: cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise ScalingInvalid(f"{path}: is not JSON: {error}; write an object, as docs/simulator.md shows") from None
    try:
        rules = read(SimulatedScaling, document, str(path))
    except InvalidInput as error:
        raise ScalingInvalid(str(error)) from None
    if rules.ratio.mode is not RatioMode.FIXED and not split:
        raise ScalingInvalid(
            f"{path}.ratio.mode: {rules.ratio.mode.value!r} needs prefill and decode instances; "
            "give --prefill-instances and --decode-instances"
        )
    return rules
