#!/usr/bin/env bash
# Sees to a cargo that is recent enough, through rustup where there is none.
#
# VK_RUSTUP_INIT names a rustup-init to use instead of a downloaded one.
set -euo pipefail
. "$(dirname "$0")/say.sh"

least=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$project/Cargo.toml")
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
cd "$project"

# Whether the cargo that answers in this project is recent enough.
recent() {
    local version
    version=$(cargo --version 2>/dev/null | awk '{ print $2 }') || return 1
    [ -n "$version" ] && [ "$(printf '%s\n' "$least" "$version" | sort -V | head -n 1)" = "$least" ]
}

complete() { cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; }

recent && complete && exit 0

need_space "${RUSTUP_HOME:-$HOME/.rustup}" 1500 "a Rust toolchain"
if command -v rustup >/dev/null; then
    say "installing Rust's stable toolchain"
    quietly rust rustup toolchain install stable --profile minimal \
        --component rustfmt --component clippy ||
        give_up "rustup could not install the stable toolchain." "Is there a network?"
else
    say "no cargo from $least on: installing Rust's stable toolchain with rustup"
    init=${VK_RUSTUP_INIT:-$(command -v rustup-init || true)}
    if [ -z "$init" ]; then
        command -v curl >/dev/null || give_up "neither cargo, rustup nor curl is here." \
            "Install curl, or Rust $least or later, and run this again."
        init=$(mktemp)
        trap 'rm -f "$init"' EXIT
        curl --proto '=https' --tlsv1.2 -sSf -o "$init" https://sh.rustup.rs ||
            give_up "rustup's installer could not be downloaded." "Is there a network?" \
                "Or name a rustup-init that is here with VK_RUSTUP_INIT."
        chmod +x "$init"
    fi
    # A cargo of the system that is too old is no reason to stop.
    RUSTUP_INIT_SKIP_PATH_CHECK=yes quietly rust "$init" -y --no-modify-path \
        --profile minimal --default-toolchain stable --component rustfmt --component clippy ||
        give_up "rustup-init failed."
fi
hash -r
recent || give_up "cargo is $(cargo --version 2>/dev/null || echo missing), and $least is needed." \
    "Is another cargo before ${CARGO_HOME:-$HOME/.cargo}/bin on the PATH?"
complete || give_up "this toolchain has no rustfmt or no clippy." "Add both: rustup component add rustfmt clippy"
