# Programs, boot bundle, images and examples where the runner can read them: for the demo and the
# benches. Sourced by them, after place.sh.
# shellcheck shell=bash

# Copies a file where it differs from what is there; a program that runs keeps its old file.
put() {
    local from=$1 to=$2 mode=$3
    # Built files are replaced by cargo, never written to: the same time and size is the same file.
    if [ ! -e "$to" ] || [ "$(stat -Lc '%Y %s' "$from")" != "$(stat -c '%Y %s' "$to")" ]; then
        cp -L --preserve=timestamps "$from" "$to.new"
        chmod "$mode" "$to.new"
        mv "$to.new" "$to"
    fi
}

# lay_out [PROGRAM…]: builds, and lays out in VK_TEST_ROOT; PROGRAMs of vk-tests are built too. With
# optimised=--release as operators have them.
lay_out() {
    local target=${CARGO_TARGET_DIR:-target} built=debug optimised=${optimised:-} name
    [ -z "$optimised" ] || built=release
    # shellcheck disable=SC2086 # Nothing, or one word.
    scripts/build $optimised
    mkdir -p "$VK_TEST_ROOT"/{bin,images,examples,work,state}
    for name in vk vk-hub vk-gitlab vk-lab; do
        put "$target/$built/$name" "$VK_TEST_ROOT/bin/$name" 755
    done
    for name in "$@"; do
        # shellcheck disable=SC2086
        cargo build --quiet $optimised --package vk-tests --bin "$name"
        put "$target/$built/$name" "$VK_TEST_ROOT/bin/$name" 755
    done
    put "$target/x86_64-unknown-linux-gnu/agent/vk-agent" "$VK_TEST_ROOT/bin/vk-agent" 755
    put .tools/bin/vhost-device-vsock "$VK_TEST_ROOT/bin/vhost-device-vsock" 755
    for name in debian busybox; do
        put ".tools/images/$name.tar" "$VK_TEST_ROOT/images/$name.tar" 644
    done
    rm -rf "$VK_TEST_ROOT/examples"
    cp -R examples "$VK_TEST_ROOT/examples"
    chmod -R a+rX "$VK_TEST_ROOT/examples"
    pack
    [ -z "$runner" ] || chown "$runner:" "$VK_TEST_ROOT/work" "$VK_TEST_ROOT/state"
}

# Packs the boot bundle, where its kernel or the agent is another than that of the last one.
pack() {
    local kernel agent of
    kernel=$(readlink -f .tools/kernel)
    agent=$(sha256sum <"$VK_TEST_ROOT/bin/vk-agent")
    # With the manifest's format, of which neither knows.
    of="$kernel ${agent%% *} 3"
    [ "$(cat "$VK_TEST_ROOT/guest/of" 2>/dev/null)" != "$of" ] || return 0
    "$VK_TEST_ROOT/bin/vk" guest pack --kernel "$kernel/vmlinuz" --modules "$kernel/modules" \
        --agent "$VK_TEST_ROOT/bin/vk-agent" --out "$VK_TEST_ROOT/guest"
    echo "$of" >"$VK_TEST_ROOT/guest/of"
    chmod -R a+rX "$VK_TEST_ROOT/guest"
}

# Runs a command as the runner, in its own folder, with nothing of this environment but what a
# terminal needs.
as_runner() {
    local clean=(env -i "HOME=$VK_TEST_ROOT/work" "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        "TERM=${TERM:-dumb}" "LANG=C.UTF-8")
    [ -z "${NO_COLOR:-}" ] || clean+=("NO_COLOR=$NO_COLOR")
    if [ -n "$runner" ]; then
        (cd "$VK_TEST_ROOT/work" && runuser -u "$runner" -- "${clean[@]}" "$@")
    else
        (cd "$VK_TEST_ROOT/work" && "${clean[@]}" "$@")
    fi
}
