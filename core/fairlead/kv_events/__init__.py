"""KV events: which instance holds which blocks of which prompts, as the engines themselves say it.

    predictions     whether an index agrees with what the engine counted, over a recording
    playing         a recording, played to an index in the recorder's time
    unseen_blocks   what a cache must have held though no event of the recording says so
    recordings      what a recording holds
    engine_caches   how much of a prompt an instance holds, by events or else by what a router remembers
    block_index     the index that events feed and prompts ask
    sources         the caches that events come from, what is known of each, and who holds which block, one bit each
    block_keys | engine_hashes | sequences
                    keys of prompts; the engine's own hashes, recomputed; gaps, replays and restarts
    events          what an engine says

An event names a block by the engine's hash, which depends on the engine's algorithm and seed. A prompt is looked up by
keys of our own, computed from its token ids; a stored block's event has token ids too, so the index learns which key a
hash stands for. Its danger: a block it believes in and the engine has evicted costs a whole prefill.
"""
