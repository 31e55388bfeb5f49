"""A fitted engine model as a file: `fairlead engines fit --out` writes it and `fairlead simulate --engine` reads it."""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import yaml

from fairlead_client.resources.engine_fits import EngineCosts, EngineFit
from fairlead_process.yaml_documents import complaint, read_yaml
from fairlead_simulator.engine_fit.replaying import decode_of, prefill_of
from fairlead_simulator.engine_model.kv_memory import PREFIX_BLOCK_TOKENS
from fairlead_simulator.engine_model.presets import EnginePreset, preset
from fairlead_simulator.errors import EngineFileInvalid, OutputUnwritable

BASE = "vllm-h100-8b"
"""The preset that supplies all figures that the fit does not determine: KV memory, links and targets."""
_MOST_TOKENS = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile:
    """A fitted engine model. The fit determines its costs. It does not determine the size of the KV memory, so
    `kv_tokens` is given separately.
    """

    name: str
    kv_tokens: int
    block_tokens: int
    max_sequences: int
    fit: EngineFit

    @classmethod
    def of(cls, name: str, fit: EngineFit, kv_tokens: int | None) -> "EngineFile":
        """Return the engine file of a fit. The engine's KV capacity in tokens is `kv_tokens` or, if that is None, the
        capacity of the preset `BASE`.
        """
        base = preset(BASE)
        memory = base.kv_tokens if kv_tokens is None else kv_tokens
        return cls(name=name, kv_tokens=memory, block_tokens=base.block_tokens, max_sequences=base.max_sequences, fit=fit)

    def preset(self) -> EnginePreset:
        """Return the engine model as a preset, which the simulator can run."""
        base = with_costs(preset(BASE), self.fit.costs)
        about = f"Fitted to {self.fit.source}."
        return replace(
            base,
            name=self.name,
            about=about,
            kv_tokens=self.kv_tokens,
            block_tokens=self.block_tokens,
            max_sequences=self.max_sequences,
            is_estimated=False,
        )


def with_costs(engine: EnginePreset, costs: EngineCosts) -> EnginePreset:
    """Return `engine` with the fitted `costs` in place of its own costs; the size of its memory does not change."""
    return replace(
        engine,
        mode="chunked",
        overhead_seconds=costs.overhead_seconds,
        max_batched_tokens=costs.max_batched_tokens,
        prefill=prefill_of(costs),
        decode=decode_of(costs),
        is_estimated=False,
    )


def write_engine(path: Path, engine: EngineFile) -> None:
    """Write an engine file, as JSON if the name of `path` ends in `.json`, else as YAML. Raises OutputUnwritable."""
    document = msgspec.to_builtins(engine)
    if path.suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    else:
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputUnwritable(path, error.strerror or "unknown error", "choose another file") from None


def read_engine(path: Path) -> EngineFile:
    """Read a fitted engine from a file. Raises EngineFileInvalid."""
    try:
        engine = msgspec.convert(read_yaml(path.read_bytes()), EngineFile)
    except OSError as error:
        raise EngineFileInvalid(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise EngineFileInvalid(f"{path}: is neither YAML nor JSON: {complaint(error)}; fairlead engines fit --out writes one") from None
    except msgspec.ValidationError as error:
        raise EngineFileInvalid(f"{path}: {error}; fairlead engines fit --out writes one") from None
    _check(path, engine)
    return engine


def _check(path: Path, engine: EngineFile) -> None:
    fault = engine.fit.costs.fault()
    if fault is not None:
        field, value, remedy = fault
        raise EngineFileInvalid(f"{path}: fit.costs.{field}: {value} cannot be used; {remedy}")
    wholes = {"kv_tokens": engine.kv_tokens, "max_sequences": engine.max_sequences}
    for name, whole in wholes.items():
        if not 1 <= whole <= _MOST_TOKENS:
            raise EngineFileInvalid(f"{path}: {name}: {whole} must be a whole number from 1 to {_MOST_TOKENS:,}")
    if engine.block_tokens < 1 or PREFIX_BLOCK_TOKENS % engine.block_tokens:
        raise EngineFileInvalid(
            f"{path}: block_tokens: {engine.block_tokens} must divide {PREFIX_BLOCK_TOKENS}, the tokens per block id of a trace"
        )
