#!/usr/bin/env bash
# The images of the four processes, by a rootless builder: images.sh OUT. Each becomes the OCI layout OUT/images/<process>, tagged with the version.
#   ARCH    architectures, by comma: amd64,arm64. This machine's own without it; another one needs its emulator (Debian: qemu-user-static)
#   BASE    the base's name, or `bootstrap` for one made from Debian's packages. Without it the Dockerfile's, or the other where no registry answers
#   SOURCE  URL of the repository, for the labels
# Needs buildah and skopeo, and mmdebstrap for a bootstrapped base: all are Debian packages. Neither a daemon nor root is needed.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
for tool in buildah skopeo; do
  command -v $tool >/dev/null || { echo "$tool is missing: install it (Debian: apt-get install buildah skopeo mmdebstrap) and repeat" >&2; exit 1; }
done
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot} # it needs no rights that a container lacks
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml | head -n 1)
commit=$(git rev-parse HEAD)
made=$(git log -1 --format=%ct)
pinned=$(sed -n 's/^ARG BASE=//p' images/Dockerfile)
IFS=, read -ra architectures <<< "${ARCH:-$(dpkg --print-architecture)}"
mkdir -p "$out"

base=${BASE:-$pinned}
if [ -z "${BASE:-}" ] && ! timeout 30 skopeo inspect --raw "docker://$pinned" >/dev/null 2>&1; then
  echo "no registry has $pinned for this machine: the base is bootstrapped from Debian's packages" >&2
  base=bootstrap
fi
base_of() { # ARCHITECTURE: the base's name in the builder's store, made where it is missing
  if [ "$base" != bootstrap ]; then echo "$base"; return; fi
  local name=localhost/fairlead-base:$1
  buildah inspect --type image "$name" >/dev/null 2>&1 || scripts/release/base.sh "$1" "$name"
  echo "$name"
}

common=(--layers --timestamp "$made" --format oci --network host
  --label org.opencontainers.image.version="$version" --label org.opencontainers.image.revision="$commit"
  --label org.opencontainers.image.licenses=Apache-2.0 --label org.opencontainers.image.created="$(date -u -d "@$made" +%Y-%m-%dT%H:%M:%SZ)")
[ -z "${SOURCE:-}" ] || common+=(--label org.opencontainers.image.source="$SOURCE" --label org.opencontainers.image.documentation="$SOURCE/tree/main/docs")
# An authority that only this machine knows, for the steps that download; it does not become part of an image.
[ -z "${SSL_CERT_FILE:-}" ] || common+=(--volume "$SSL_CERT_FILE:/etc/ssl/certs/ca-certificates.crt:ro")

for process in operator api router engine; do
  list=localhost/fairlead-$process:$version
  buildah rmi --force "$list" >/dev/null 2>&1 || buildah manifest rm "$list" >/dev/null 2>&1 || true
  buildah manifest create "$list" >/dev/null
  for architecture in "${architectures[@]}"; do
    on=$(base_of "$architecture")
    echo "building $process for $architecture on $on" >&2
    buildah build --quiet "${common[@]}" --label org.opencontainers.image.title="fairlead $process" --label org.opencontainers.image.base.name="$on" \
      --arch "$architecture" --build-arg BASE="$on" --target "$process" --manifest "$list" --file images/Dockerfile . >/dev/null
  done
  rm -rf "$out/images/$process"
  mkdir -p "$out/images"
  buildah manifest push --quiet --all "$list" "oci:$out/images/$process:$version" >/dev/null
done
