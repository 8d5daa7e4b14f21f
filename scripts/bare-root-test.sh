#!/bin/sh
# Runs the README's two commands in a bare system, as root: a fresh debootstrap with apt and make
# and nothing else, into which the working tree is copied. Needs root, debootstrap and the network.
#
#   scripts/bare-root-test.sh [SUITE [MIRROR [DIRECTORY]]]
#
# SUITE is bookworm (default) or any other of Debian or Ubuntu. DIRECTORY (default: a temporary
# one, removed afterwards) gets the system; one that holds a system already is reused as it is.
set -eu
suite=${1:-bookworm}
mirror=${2:-}  # empty: the one that debootstrap knows
repository=$(cd "$(dirname "$0")/.." && pwd)

root=${3:-}
made=
if [ -z "$root" ]; then
  root=$(mktemp -d)
  made=$root
fi
leave() {
  if mountpoint -q "$root/proc"; then umount "$root/proc"; fi
  if [ -n "$made" ]; then rm -rf --one-file-system "$made"; fi
}
trap leave EXIT
trap 'exit 1' INT TERM

if [ ! -e "$root/etc/os-release" ]; then
  # Ubuntu keeps nearly all that Ridge is built from in "universe"; Debian has no such part.
  case $mirror in *ubuntu*) parts=main,universe ;; *) parts=main ;; esac
  debootstrap --variant=minbase --include=make --components="$parts" "$suite" "$root" ${mirror:+"$mirror"}
fi
mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/"

# The tree as git would clone it: what is tracked, and what is new and not ignored.
rm -rf "$root/ridge"
mkdir "$root/ridge"
(cd "$repository" && git ls-files -z --cached --others --exclude-standard |
  tar --null --ignore-failed-read -T - -cf -) | tar -xf - -C "$root/ridge"

in_root() {
  echo "bare-root-test: $*"
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    sh -c 'cd /ridge && exec "$@"' sh "$@" </dev/null
}
in_root make run
in_root make test
echo "bare-root-test: both commands succeeded on $suite"
