"""Generated workloads, as trace rows. They are reproducible from a seed and, where possible, endless, and they need
only bounded memory.

There is one generator per module. Each generator is modelled on published figures of a real workload, and tested
against these figures. The package must not read files, nor know anything of engines or policies. Its danger: a
generated trace shows only our idea of a workload, and a policy that wins on it may lose on the real one.
"""

from fairlead_simulator.workloads.conversations import SYSTEM_BLOCK, ConversationShape, generate_conversations

__all__ = ["SYSTEM_BLOCK", "ConversationShape", "generate_conversations"]
