#!/usr/bin/env bash
# Tries `make up` on machines as they come: fresh_machines.sh [SYSTEM …], of debian-12, debian-13, ubuntu-24.04 and fedora-42; all without one.
# Each is a bare root, bootstrapped on first use into $FRESH_ROOTS (default: /var/tmp/fairlead-roots), entered as a plain container is: user namespaces
# are refused there, and only root enters /root. The commit that is checked out is tried, a line for each try:
#   no venv    an ordinary user without Python's venv module: one line says what to install
#   root       in a folder below /root; what is missing is installed
#   user       in the home of an ordinary user
# Needs root, mmdebstrap (and ubuntu-archive-keyring for Ubuntu, dnf for Fedora) and the system's mirror; a system without its mirror is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin
kept=${FRESH_ROOTS:-/var/tmp/fairlead-roots}
authorities=/etc/ssl/certs/ca-certificates.crt
[ "$(id -u)" = 0 ] || { echo "fresh_machines.sh makes and enters roots of other systems: run it as root" >&2; exit 2; }
mkdir -p "$kept"
[ $# -gt 0 ] || set -- debian-12 debian-13 ubuntu-24.04 fedora-42

bootstrap() { # SYSTEM FOLDER
  local packages=make,git,python3,ca-certificates,passwd
  case $1 in
    debian-12) mmdebstrap --quiet --mode=root --variant=apt --include=$packages bookworm "$2" ;;
    debian-13) mmdebstrap --quiet --mode=root --variant=apt --include=$packages trixie "$2" ;;
    ubuntu-24.04)
      mmdebstrap --quiet --mode=root --variant=apt --include=$packages --keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg \
        --components=main,universe noble "$2" http://archive.ubuntu.com/ubuntu ;;
    fedora-42)
      dnf -q -y --installroot "$2" --releasever 42 --setopt install_weak_deps=False --repofrompath \
        fedora,https://dl.fedoraproject.org/pub/fedora/linux/releases/42/Everything/x86_64/os --repoid fedora --nogpgcheck \
        install fedora-release make git python3 ca-certificates shadow-utils util-linux findutils ;;
    *) echo "there is no system $1: take debian-12, debian-13, ubuntu-24.04 or fedora-42" >&2; exit 2 ;;
  esac
}

inside() { # FOLDER COMMAND: in a mount and process namespace of its own, which takes what is started there along when it ends
  env ROOT="$1" COMMAND="$2" AUTHORITIES=$authorities unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    mount --bind "$ROOT" "$ROOT"; mount -t proc proc "$ROOT/proc"; mount -t tmpfs -o mode=755 dev "$ROOT/dev"
    mkdir -p "$ROOT/dev/pts" "$ROOT/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$ROOT/dev/pts"; mount -t tmpfs -o mode=1777 shm "$ROOT/dev/shm"
    for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$ROOT/dev/${device%:*}" c 1 "${device#*:}"; done
    ln -s pts/ptmx "$ROOT/dev/ptmx"; ln -s /proc/self/fd "$ROOT/dev/fd"; ln -s fd/1 "$ROOT/dev/stdout"; ln -s fd/2 "$ROOT/dev/stderr"
    exec env -i TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SSL_CERT_FILE="$AUTHORITIES" PIP_CERT="$AUTHORITIES" \
      chroot "$ROOT" /bin/bash -c "$COMMAND"'
}

checkout() { # FOLDER PLACE OWNER: a fresh clone
  rm -rf "$1$2"
  git clone --quiet . "$1$2"
  chroot "$1" chown -R "$3" "$2"
}

tried() { # SYSTEM WHO SECONDS CODE LOG
  if [ "$4" = 0 ]; then echo "$1, $2: well, $3 s"; else echo "$1, $2: failed after $3 s, see $5"; failed=1; fi
}

as_person="setpriv --reuid=1234 --regid=1234 --clear-groups env HOME=/home/person bash -euc"
up="make up ARGS=-d && .venv/bin/fairlead status && .venv/bin/fairlead down"
failed=0
for system in "$@"; do
  root=$kept/$system
  if [ ! -d "$root" ]; then
    bootstrap "$system" "$root.new" > "$root.log" 2>&1 || { echo "$system: skipped, it could not be bootstrapped: $(tail -n 1 "$root.log")"; rm -rf "$root.new"; continue; }
    mv "$root.new" "$root"
    chroot "$root" useradd --uid 1234 --create-home person
  fi
  mkdir -p "$root$(dirname $authorities)"
  cp --remove-destination -L $authorities "$root$authorities"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  chmod 700 "$root/root"

  checkout "$root" /home/person/fairlead person
  if ! chroot "$root" python3 -c 'import ensurepip' 2>/dev/null; then
    SECONDS=0 code=0
    inside "$root" "cd /home/person/fairlead && $as_person 'make up'" > "$root-no-venv.log" 2>&1 && code=1
    [ "$(grep -c . "$root-no-venv.log")" = 3 ] && grep -q "venv module is missing: install it" "$root-no-venv.log" || code=1
    tried "$system" "no venv" $SECONDS $code "$root-no-venv.log"
  fi
  checkout "$root" /root/fairlead root
  SECONDS=0 code=0
  inside "$root" "export HOME=/root; cd /root/fairlead && $up" > "$root-root.log" 2>&1 || code=$?
  ! grep -qi debconf "$root-root.log" || code=1
  tried "$system" root $SECONDS $code "$root-root.log"
  SECONDS=0 code=0
  inside "$root" "cd /home/person/fairlead && $as_person '$up'" > "$root-user.log" 2>&1 || code=$?
  tried "$system" user $SECONDS $code "$root-user.log"
done
exit $failed
