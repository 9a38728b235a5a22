#!/usr/bin/env bash
# Installs the Debian packages of some purposes: packages.sh build|vm|image|test …
set -euo pipefail
. "$(dirname "$0")/say.sh"
. "$(dirname "$0")/root.sh"

purpose() {
    case $1 in
    build) echo gcc libc6-dev make pkg-config git ca-certificates ;;
    vm) echo qemu-system-x86 erofs-utils e2fsprogs kmod iproute2 util-linux procps ;;
    image)
        echo mmdebstrap
        # An ordinary user unpacks an image in a user namespace of its own.
        [ "$(id -u)" -eq 0 ] || echo uidmap
        ;;
    test) echo git skopeo umoci attr libcap2-bin passt nftables ;;
    *) give_up "packages.sh: unknown purpose $1" ;;
    esac
}

wanted=()
for name in "$@"; do
    # shellcheck disable=SC2207 # package names hold no blanks
    wanted+=($(purpose "$name"))
done

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null || true)
missing=()
for package in "${wanted[@]}"; do
    grep -qx "installed $package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

need_apt "$*"
need_space /usr 1500 "installing ${missing[*]}"
install=(apt-get install -y --no-install-recommends "${missing[@]}")
need_root "installing ${missing[*]}" "${install[@]}"
for package in "${missing[@]}"; do
    apt_knows "$package" || apt_update
done
say "installing ${missing[*]}"
install=(env DEBIAN_FRONTEND=noninteractive "${install[@]}")
quietly packages as_root "${install[@]}" || {
    # Lists may be older than what the mirror still holds.
    apt_update
    quietly packages as_root "${install[@]}" ||
        give_up "installing ${missing[*]} failed." "Is there a network, and room on the disk?"
}
