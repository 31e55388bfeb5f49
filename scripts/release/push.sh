#!/usr/bin/env bash
# Pushes the images, the chart and their signatures of a release: push.sh OUT REGISTRY. REGISTRY_TLS=false for a registry without TLS.
set -euo pipefail
out=$1 registry=$2
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH=$here "$here/../../.venv/bin/python" -m fairlead_release.main tags "$out" | while read -r folder to tag; do
  skopeo copy --quiet --all --preserve-digests --dest-tls-verify="${REGISTRY_TLS:-true}" "oci:$folder:$tag" "docker://$registry/$to:$tag"
  echo "pushed $registry/$to:$tag"
done
