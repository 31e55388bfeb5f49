"""A made-up metrics page of an engine with two ranks, in the format of vLLM 0.32. A name on it tries to break pages."""

from fairlead_testing.fakes.public_data.loads import HOSTILE

_HEAD = """\
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="11",patchlevel="7",version="3.11.7"} 1.0
# HELP process_resident_memory_bytes Resident memory size in bytes.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1.047076864e+09
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79529109246e+09
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
# HELP vllm:prefix_cache_queries_created Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_created gauge
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
# HELP vllm:lora_requests_info Running stats on lora requests.
# TYPE vllm:lora_requests_info gauge
"""
_RANK = """\
vllm:num_requests_running{engine="RANK",model_name="Qwen/Qwen3-32B"} 17.0
vllm:kv_cache_usage_perc{engine="RANK",model_name="Qwen/Qwen3-32B"} 0.8125
vllm:prefix_cache_queries_total{engine="RANK",model_name="Qwen/Qwen3-32B"} 324132.0
vllm:prefix_cache_queries_created{engine="RANK",model_name="Qwen/Qwen3-32B"} 1.7952911864629e+09
vllm:time_to_first_token_seconds_bucket{engine="RANK",le="0.25",model_name="Qwen/Qwen3-32B"} 500.0
vllm:time_to_first_token_seconds_bucket{engine="RANK",le="2.5",model_name="Qwen/Qwen3-32B"} 880.0
vllm:time_to_first_token_seconds_bucket{engine="RANK",le="+Inf",model_name="Qwen/Qwen3-32B"} 900.0
vllm:time_to_first_token_seconds_count{engine="RANK",model_name="Qwen/Qwen3-32B"} 900.0
vllm:time_to_first_token_seconds_sum{engine="RANK",model_name="Qwen/Qwen3-32B"} 450.0
"""
PAGE = (
    _HEAD
    + "".join(_RANK.replace("RANK", str(rank)) for rank in range(2))
    + f'vllm:lora_requests_info{{running_lora_adapters="{HOSTILE}"}} NaN\nnot a line of the format\n'
)
