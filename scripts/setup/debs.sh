# Debian packages that are unpacked, not installed. Sourced by the other scripts.
# shellcheck shell=bash
: "${cache:?say.sh comes first}"

# Downloads a package and unpacks it into a folder: unpack_deb PACKAGE FOLDER
unpack_deb() {
    local scratch status=0
    scratch=$(mktemp -d "$cache/deb.XXXXXX")
    # apt's own user for downloads may not enter this user's folders.
    (
        cd "$scratch"
        quietly "download-$1" apt-get download -o APT::Sandbox::User="$(id -un)" "$1" || {
            apt_update
            quietly "download-$1" apt-get download -o APT::Sandbox::User="$(id -un)" "$1"
        }
    ) || { rm -rf "$scratch"; give_up "the package $1 could not be downloaded." "Is there a network?"; }
    mkdir -p "$2"
    dpkg-deb -x "$scratch"/*.deb "$2" || status=$?
    rm -rf "$scratch"
    [ "$status" -eq 0 ] || give_up "the package $1 could not be unpacked into $2." "Is there room?"
}

# The version of a package that apt would take now.
deb_version() {
    apt_knows "$1" || apt_update
    apt_knows "$1" || give_up "apt knows no package $1."
    LC_ALL=C apt-cache policy "$1" | awk '$1 == "Candidate:" { print $2 }'
}
