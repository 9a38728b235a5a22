#!/usr/bin/env bash
# Installs programs from the package registry of Rust into the project's tools folder:
# tools.sh cargo-deny|vhost-device-vsock …
set -euo pipefail
. "$(dirname "$0")/say.sh"
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# Version and profile of each. A check runs for a second: it need not be optimised.
recipe() {
    case $1 in
    cargo-deny) echo 0.20.2 --debug ;;
    vhost-device-vsock) echo 0.3.0 ;;
    *) give_up "tools.sh: unknown tool $1" ;;
    esac
}

install_one() {
    local name=$1 version profile home
    read -r version profile <<<"$(recipe "$name")"
    home=$cache/$name-$version-$(uname -m)
    if [ ! -x "$home/bin/$name" ]; then
        one_at_a_time "$name"
        if [ ! -x "$home/bin/$name" ]; then
            need_space "$cache" 1500 "compiling $name"
            say "compiling $name $version (a minute or two, once)"
            local scratch=$cache/build-$name
            # Away from the project, whose toolchain file and lints are its own.
            # shellcheck disable=SC2086 # no profile is no argument
            (cd "$cache" && CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$scratch RUSTFLAGS='' \
                quietly "$name" cargo install --locked $profile --no-track --root "$home.part" \
                --version "$version" "$name") ||
                give_up "$name could not be compiled." "Is there a network, and a C compiler?"
            rm -rf "$home" "$scratch"
            mv "$home.part" "$home"
        fi
    fi
    mkdir -p "$tools/bin"
    ln -sfn "$home/bin/$name" "$tools/bin/$name"
}

for tool in "$@"; do install_one "$tool"; done
