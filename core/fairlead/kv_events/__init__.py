"""KV events: which instance holds which blocks of which prompts, as reported by the engines themselves.

    predictions     whether an index agrees with the engine's own count, over a recording
    playing         plays a recording to an index in the recorder's time
    unseen_blocks   blocks that a cache must have held though no event of the recording reports them
    recordings      the content of a recording
    engine_caches   how much of a prompt an instance holds, by events or else by a router's own history
    block_index     the index that events update and prompts query
    sources         the caches that send events, what is known of each, and the holders of each block, one bit each
    block_keys | engine_hashes | sequences
                    keys of prompts; the engine's own hashes, recomputed; gaps, replays and restarts
    events          the events that an engine sends

An event names a block by the engine's hash, which depends on the engine's algorithm and seed. A prompt is looked up by
keys of our own, computed from its token ids; the event of a stored block has token ids too, so the index learns which
key a hash stands for. The danger of the index: a block that it lists but the engine has evicted costs a whole prefill.
"""
