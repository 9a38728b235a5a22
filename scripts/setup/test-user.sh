#!/usr/bin/env bash
# Makes the user that tests and the demo run as when `make` runs as root: test-user.sh NAME HOME
set -euo pipefail
. "$(dirname "$0")/say.sh"

name=$1 home=$2
[ "$(id -u)" -eq 0 ] || exit 0
if ! id "$name" >/dev/null 2>&1; then
    say "making the user $name"
    PATH="$PATH:/usr/sbin" useradd --system --user-group --no-create-home --home-dir "$home" \
        --shell /usr/sbin/nologin "$name" || give_up "the user $name could not be made."
fi
# Where KVM is open to a group, the tests' user is of it.
if [ -c /dev/kvm ]; then
    group=$(stat -c %G /dev/kvm)
    if [ "$group" != root ] && [ "$group" != UNKNOWN ] && ! id -nG "$name" | grep -qw "$group"; then
        PATH="$PATH:/usr/sbin" usermod -aG "$group" "$name"
    fi
fi
# Taps are made by ordinary users: udev opens the device to all, and where there is none, this does.
if [ -c /dev/net/tun ] && [ "$(stat -c %a /dev/net/tun)" != 666 ]; then
    chmod 0666 /dev/net/tun || say "/dev/net/tun stays closed: tests of guests' networks do not run"
fi
mkdir -p "$home"
chmod 755 "$home"
