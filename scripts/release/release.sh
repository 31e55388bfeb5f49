#!/usr/bin/env bash
# A release, from the commit that is checked out, into the folder OUT: release.sh OUT. docs/releasing.md says what becomes of it.
#   KEY       PEM file with the private key that signs (P-256). Without it a trial's, made in OUT.key
#   TAG       v<version>: then tag, versions and changelog must agree
#   REGISTRY  registry and path to push to, such as ghcr.io/someone; without it nothing is pushed. REGISTRY_TLS=false for one without TLS
#   ARCH, BASE, SOURCE: as images.sh says. BUILDER: URI of the builder, for the provenance
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$1
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
  [ -z "${TAG:-}" ] || { echo "the checkout has changes that no commit has: commit them, so that $TAG is of a commit" >&2; exit 1; }
  echo "the checkout has changes that no commit has: a trial, which names the last commit" >&2
fi
release() { PYTHONPATH=scripts/release .venv/bin/python -m fairlead_release.main "$@"; }
release check --tag "${TAG:-}"
mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || { echo "$out is not empty: name another folder, or empty it" >&2; exit 1; }
if [ -z "${KEY:-}" ]; then
  KEY=${out%/}.key
  [ -f "$KEY" ] || (umask 077 && openssl ecparam -name prime256v1 -genkey -noout -out "$KEY")
  echo "no KEY: a trial's is $KEY" >&2
fi

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
.venv/bin/uv build --quiet --all-packages --out-dir "$out"
rm -f "$out/.gitignore"
scripts/release/images.sh "$out"
release assemble "$out" --key "$KEY" --tag "${TAG:-}" ${REGISTRY:+--registry "$REGISTRY"} ${SOURCE:+--source "$SOURCE"} ${BUILDER:+--builder "$BUILDER"}
release verify "$out" --key "$out/fairlead.pub"
[ -n "${REGISTRY:-}" ] || { echo "no REGISTRY: nothing was pushed" >&2; exit 0; }
scripts/release/push.sh "$out" "$REGISTRY"
