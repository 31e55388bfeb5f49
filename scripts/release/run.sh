#!/usr/bin/env bash
# Runs the image of a process as the chart's pods run it: as its user, on a read-only root with a /tmp of its own, without capabilities.
#   run.sh OUT PROCESS [NAME=value …] [-- COMMAND …]     OUT is a folder that images.sh filled; the variables are for the process
# It shares this machine's network, ends with the process, and passes signals on. Needs umoci and crun (Debian packages) and namespaces.
set -euo pipefail
out=$1 process=$2
shift 2
for tool in umoci runc; do
  command -v $tool >/dev/null || { echo "$tool is missing: install it (Debian: apt-get install umoci runc) and repeat" >&2; exit 1; }
done
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../../pyproject.toml" | head -n 1)
bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
rootless=(); [ "$(id -u)" = 0 ] || rootless=(--rootless)
umoci unpack "${rootless[@]}" --image "$out/images/$process:$version" "$bundle/it"
python3 - "$bundle/it/config.json" "$@" <<'PYTHON'
import json
import sys

path, *words = sys.argv[1:]
split = words.index("--") if "--" in words else len(words)
with open(path) as file:
    config = json.load(file)
config["root"]["readonly"] = True
config["linux"]["namespaces"] = [one for one in config["linux"]["namespaces"] if one["type"] != "network"]
config["mounts"] = [one for one in config["mounts"] if one["type"] not in {"sysfs", "cgroup"} and one["destination"] != "/sys"]
config["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]})
process = config["process"]
process |= {"terminal": False, "noNewPrivileges": True, "capabilities": {}}
process["env"] += words[:split]
process["args"] = words[split + 1 :] or process["args"]
process["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 4096, "hard": 4096}]
with open(path, "w") as file:
    json.dump(config, file)
PYTHON
runc --root "$bundle/state" run --bundle "$bundle/it" "fairlead-$process-$$" &
trap 'kill -TERM $! 2>/dev/null || true; wait $! || true; rm -rf "$bundle"' INT TERM
wait $!
