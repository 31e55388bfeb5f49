"""The instances of a simulated pool: model engines whose memory knows prompts by the trace's block ids."""

from fairlead_simulator.engine_model.instance import Instance
from fairlead_simulator.engine_model.kv_memory import PrefixCacheWatcher
from fairlead_simulator.engine_model.presets import EnginePreset
from fairlead_simulator.engine_model.trace_memory import TraceMemory
from fairlead_simulator.simulation.jobs import Job


class SimulatedInstance(Instance[Job]):
    """An engine called `name`, with the memory its preset says; `watcher` is notified about its prefix cache."""

    def __init__(self, name: str, preset: EnginePreset, watcher: PrefixCacheWatcher | None = None) -> None:
        self.kv = TraceMemory(preset.capacity_blocks, preset.block_tokens, preset.dram_tokens, preset.eviction, watcher)
        super().__init__(name, preset, self.kv)
        self.watched = 0
        """The state version whose step's end is scheduled as an event."""
