#!/usr/bin/env bash
# Unpacks an image registry for tests into .tools/bin. It is not installed, since a package of a
# registry starts a service.
set -euo pipefail
. "$(dirname "$0")/say.sh"
. "$(dirname "$0")/root.sh"
. "$(dirname "$0")/debs.sh"

link=$tools/bin/docker-registry
[ -x "$link" ] && exit 0
home=$cache/docker-registry
if [ ! -x "$home/usr/bin/docker-registry" ]; then
    need_apt "an image registry"
    one_at_a_time registry
    need_space "$cache" 200 "an image registry"
    say "unpacking an image registry for tests (not installed)"
    rm -rf "$home" "$home.part"
    unpack_deb docker-registry "$home.part"
    mv "$home.part" "$home"
fi
mkdir -p "$tools/bin"
ln -sfn "$home/usr/bin/docker-registry" "$link"
