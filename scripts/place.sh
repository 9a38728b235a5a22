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
        export VK_TEST_ROOT=${VK_TEST_ROOT:-$PWD/.test-root/$1}
        runner=
        mkdir -p "$VK_TEST_ROOT"
    fi
}
