"""KV events: which instance holds which blocks of which prompts, as reported by the engines themselves.

    predictions     whether an index agrees with the engine's own count, over a recording
    playing         plays a recording to an index in the recorder's time
    unseen_blocks   blocks that a cache must have held though no event of the recording reports them
    recordings      the content of a recording
    engine_caches   how much of a prompt an instance holds, by events or else by a router's own history
    block_index     the index that events update and prompts query
    sources         the caches that send events, the blocks that each of them holds, and each block's holders as bits
    block_keys | engine_hashes | sequences
                    keys of prompts; the engine's own hashes, recomputed; gaps, replays and restarts
    events          the events that an engine sends

An event names a block by the engine's hash, which depends on the engine's algorithm and seed. A prompt is looked up by
keys of our own, computed from its token ids; the event of a stored block has token ids too, so the index learns which
key a hash stands for. An error of the index is expensive: if it lists a block that the engine has evicted, a request is
placed for a cache hit and computes its whole prompt instead.
"""
