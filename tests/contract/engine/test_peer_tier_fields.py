"""The fields with which a router names a p2p tier, as vLLM 0.32 reads them (`_parse_source` of
`v1/kv_offload/tiering/p2p/manager.py`): a dictionary of these three, none of them empty.
"""

import json

from fairlead_router.relaying.dividing import tier_source
from fairlead_simulator.engine_server.kv_transfers import read_handover
from fairlead_simulator.engine_server.p2p_tier import KvSource


def test_a_router_names_a_tier_as_vllm_and_the_simulated_engine_read_it() -> None:
    params = tier_source("chat-7-kv", "10.0.0.4", 5710)
    assert json.loads(json.dumps(params)) == {
        "remote_kv_source": {"kv_request_id": "chat-7-kv", "remote_host": "10.0.0.4", "remote_port": 5710}
    }
    read = read_handover({"kv_transfer_params": params})
    assert read.source == KvSource(kv_request_id="chat-7-kv", host="10.0.0.4", port=5710)
    assert not read.holds and read.fetches is None
