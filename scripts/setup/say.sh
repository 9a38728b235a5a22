# What the set-up says while it works, and how it gives up. Sourced by the other scripts.
# shellcheck shell=bash

# The project's folder, and its own folder of tools (ignored by git).
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
tools=$project/.tools
# What is downloaded or compiled once serves every clone of this user.
cache=${VK_TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vk-tools}
export project tools cache

# A step that takes time.
say() { printf '==> %s\n' "$*" >&2; }

# The end of the set-up: what failed, and what to do.
give_up() {
    printf 'set-up: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '        %s\n' "$@" >&2
    exit 1
}

# Runs a long command with its output in a log, a dot every few seconds, and its tail on failure.
# quietly LOG-NAME COMMAND…
quietly() {
    local log=$cache/logs/$1.log status=0
    shift
    mkdir -p "$cache/logs"
    "$@" >"$log" 2>&1 </dev/null &
    local pid=$! waited=0
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        waited=$((waited + 1))
        [ $((waited % 25)) -ne 0 ] || printf '.' >&2
    done
    [ "$waited" -lt 25 ] || printf '\n' >&2
    wait "$pid" || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 15 "$log" >&2
        printf 'set-up: the whole output is in %s\n' "$log" >&2
    fi
    return "$status"
}

# Whether there is room: need_space FOLDER MIB WHAT-FOR
need_space() {
    local folder=$1 free
    until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
    free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free" -ge "$2" ] || give_up "$3 needs $2 MiB in $1, and there are $free MiB free." \
        "Free some, or name another folder with VK_TOOLS_CACHE (tools, kernel, images)."
}

# Holds a lock until the script ends, so that two set-ups do not do the same work.
one_at_a_time() {
    mkdir -p "$cache" "$tools"
    exec 8>"$cache/.lock-$1"
    flock -n 8 || { say "waiting for another set-up"; flock 8; }
}
