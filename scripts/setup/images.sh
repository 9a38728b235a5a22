#!/usr/bin/env bash
# Makes root file systems in .tools/images: images.sh debian|busybox|systemd …
#
# Those of debian and busybox are for jobs, that of systemd for a host in a VM, which tests boot.
set -euo pipefail
. "$(dirname "$0")/say.sh"
. "$(dirname "$0")/root.sh"
. "$(dirname "$0")/debs.sh"

setup=$(cd "$(dirname "$0")" && pwd)

# Raised whenever a recipe below changes.
recipe=1

codename() {
    # shellcheck disable=SC1091
    (. /etc/os-release && echo "${VERSION_CODENAME:-}")
}

# How this machine's apt reaches its sources: proxies, and what it is told to overlook.
apt_settings() {
    apt-config dump |
        grep -E '^Acquire::(https?|ftp)::|^Acquire::(Retries|Check-Valid-Until|Check-Date|Allow[A-Za-z]*) ' || true
}

make_debian() { make_root "$1" debian; }

# What a node's host has: an init, and git for the sources of jobs.
make_systemd() { make_root "$1" systemd --include=systemd,systemd-sysv,git,e2fsprogs,erofs-utils,procps,ca-certificates; }

# A root file system of this machine's release: make_root OUT NAME [MMDEBSTRAP-OPTION…]
make_root() {
    local out=$1 name=$2 release work mode=unshare
    shift 2
    release=$(codename)
    [ -n "$release" ] || give_up "/etc/os-release names no release to make an image of."
    [ "$(id -u)" -ne 0 ] || mode=root
    work=$(mktemp -d "$cache/image.XXXXXX")
    # In a user namespace other users than this one read it.
    chmod 755 "$work"
    "$setup/apt-sources.sh" "$release" "$work"
    [ -e "$work/one-line.list" ] || [ -e "$work/deb822.sources" ] || {
        apt_update
        "$setup/apt-sources.sh" "$release" "$work"
    }
    local sources=()
    for file in "$work/one-line.list" "$work/deb822.sources"; do
        [ ! -e "$file" ] || sources+=("$file")
    done
    [ ${#sources[@]} -gt 0 ] || give_up "apt of this machine has no source for $release, component main."
    apt_settings >"$work/apt.conf"
    say "making the $name image ($release)"
    # The last hook leaves nothing in the image that speaks of this machine.
    # shellcheck disable=SC2016 # mmdebstrap sets $1 in hooks
    TMPDIR=$cache quietly "image-$name" mmdebstrap --mode=$mode --variant=essential --format=tar \
        --aptopt="$work/apt.conf" \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*' \
        --customize-hook='rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*' \
        --customize-hook='rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap' \
        --customize-hook='rm -f "$1"/etc/hostname "$1"/etc/resolv.conf' \
        "$@" "$release" "$out" "${sources[@]}" || {
        rm -rf "$work"
        give_up "the $name image could not be made." \
            "Is there a network? As an ordinary user: are user namespaces allowed, and does /etc/subuid name you?"
    }
    rm -rf "$work"
}

make_busybox() {
    local out=$1 work tree applet
    work=$(mktemp -d "$cache/image.XXXXXX")
    say "making the busybox image"
    unpack_deb busybox-static "$work/deb"
    tree=$work/tree
    mkdir -p "$tree"/{bin,dev,etc,proc,root,run,sys,tmp,usr/share/doc/busybox,var/tmp}
    chmod 1777 "$tree/tmp" "$tree/var/tmp"
    chmod 700 "$tree/root"
    cp "$(find "$work/deb" -type f -name busybox -perm -u+x | sed -n 1p)" "$tree/bin/busybox"
    cp "$work/deb/usr/share/doc/busybox-static/copyright" "$tree/usr/share/doc/busybox/"
    for applet in $("$tree/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
    done
    echo 'root:x:0:0:root:/root:/bin/sh' >"$tree/etc/passwd"
    echo 'root:x:0:' >"$tree/etc/group"
    tar -C "$tree" --owner=0 --group=0 --numeric-owner --sort=name -cf "$out" .
    rm -rf "$work"
}

for image in "$@"; do
    link=$tools/images/$image.tar
    home=$cache/image-$image-$recipe-$(codename)-$(uname -m).tar
    [ "$(readlink "$link" || true)" = "$home" ] && [ -s "$link" ] && continue
    if [ ! -s "$home" ]; then
        need_apt "an image"
        one_at_a_time "image-$image"
        if [ ! -s "$home" ]; then
            need_space "$cache" 1000 "an image"
            "make_$image" "$home.part"
            mv "$home.part" "$home"
        fi
    fi
    mkdir -p "$tools/images"
    ln -sfn "$home" "$link"
done
