# Where tests and the demo run, and as whom. Sourced by the other scripts.
# shellcheck shell=bash

# Root builds, and everything else is the work of a user that owns nothing.
# place NAME: sets VK_TEST_ROOT and runner
place() {
    if [ "$(id -u)" -eq 0 ]; then
        export VK_TEST_ROOT=${VK_TEST_ROOT:-/var/lib/vk-$1}
        runner=vk-test
        scripts/setup/test-user.sh "$runner" "$VK_TEST_ROOT"
    else
        local own=$PWD/.test-root/$1
        # Sockets lie below it, and a socket's path is short: xtask refuses a longer root.
        [ ${#own} -le 48 ] || own=/var/tmp/vk-$(id -un)-$1
        export VK_TEST_ROOT=${VK_TEST_ROOT:-$own}
        runner=
        mkdir -p "$VK_TEST_ROOT"
        [ -O "$VK_TEST_ROOT" ] || {
            echo "$VK_TEST_ROOT is another user's: name a folder of yours with VK_TEST_ROOT" >&2
            exit 1
        }
    fi
}
