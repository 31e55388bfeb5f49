#!/usr/bin/env bash
# The image that the others are built on, bootstrapped from Debian's packages: base.sh ARCHITECTURE NAME. For machines that reach no registry.
set -euo pipefail
architecture=$1 name=$2
SUITE=trixie # Python 3.13
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
echo "bootstrapping $SUITE for $architecture" >&2
mmdebstrap --quiet --variant=minbase --architectures="$architecture" --include=python3,python3-venv,ca-certificates,tzdata \
  --dpkgopt=path-exclude='/usr/share/doc/*' --dpkgopt=path-include='/usr/share/doc/*/copyright' \
  --dpkgopt=path-exclude='/usr/share/man/*' --dpkgopt=path-exclude='/usr/share/locale/*' "$SUITE" "$kept/base.tar"
container=$(buildah from --arch "$architecture" scratch)
buildah add --quiet "$container" "$kept/base.tar" / >/dev/null
buildah config --arch "$architecture" --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --cmd /bin/sh "$container"
buildah commit --quiet --rm "$container" "$name" >/dev/null
