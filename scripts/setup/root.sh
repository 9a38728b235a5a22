# What needs root: the caller's own, or sudo's. Sourced by the other scripts.
# shellcheck shell=bash

# Makes sure that root can be had, before anything is done, or says what an administrator would have
# to run: need_root WHAT-FOR COMMAND…
need_root() {
    [ "$(id -u)" -ne 0 ] || return 0
    if command -v sudo >/dev/null; then
        # Asks for the password here, not in the middle of a quiet command.
        sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } || true
        ! sudo -n true 2>/dev/null || return 0
    fi
    local what=$1
    shift
    give_up "$what needs root, and $(id -un) has no sudo." "Have an administrator run:" \
        "    $*" "and then run this again."
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n -- "$@"; fi
}

# Whether apt knows an installable version of a package.
apt_knows() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep '^  Candidate: [^(]' >/dev/null
}

# Refreshes apt's lists, once a run.
apt_update() {
    [ -z "${apt_updated:-}" ] || return 0
    apt_updated=1
    need_root "refreshing the package lists" apt-get update
    say "refreshing the package lists"
    quietly apt-update as_root apt-get update ||
        give_up "apt-get update failed." "Is there a network, and do the sources of apt answer?"
}

need_apt() {
    command -v apt-get >/dev/null || give_up "there is no apt-get: this set-up knows Debian 12 or later." \
        "On another system install what $1 needs by hand: see scripts/setup/."
}
