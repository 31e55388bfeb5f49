"""Generated workloads, as trace rows: reproducible from a seed, endless where possible, in bounded memory.

There is one generator per module. Each is modelled on published figures of a real workload and tested against them. The
package must not read files, nor know anything of engines or policies. Its danger: a policy that wins on a generated
trace has won only on our idea of the workload.
"""

from fairlead_simulator.workloads.conversations import SYSTEM_BLOCK, ConversationShape, generate_conversations

__all__ = ["SYSTEM_BLOCK", "ConversationShape", "generate_conversations"]
