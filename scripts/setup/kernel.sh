#!/usr/bin/env bash
# Unpacks a distribution's kernel for the guests into .tools/kernel: vmlinuz, modules/, version.
#
# VK_KERNEL_PACKAGE names another kernel package than Debian's for cloud machines.
set -euo pipefail
. "$(dirname "$0")/say.sh"
. "$(dirname "$0")/root.sh"
. "$(dirname "$0")/debs.sh"

meta=${VK_KERNEL_PACKAGE:-linux-image-cloud-amd64}
link=$tools/kernel
[ -e "$link/modules/modules.dep" ] && [ "$(cat "$link/package" 2>/dev/null)" = "$meta" ] && exit 0

need_apt "a guest kernel"
one_at_a_time kernel
deb_version "$meta" >/dev/null
# A meta package depends on the real one, whose name holds the kernel's version.
package=$(LC_ALL=C apt-cache depends --important "$meta" |
    awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ && !n++ { print $2 }')
package=${package:-$meta}
home=$cache/kernel-$package-$(deb_version "$package" | tr -c 'A-Za-z0-9.+\n' '_')

if [ ! -e "$home/modules/modules.dep" ]; then
    need_space "$cache" 600 "a guest kernel"
    say "unpacking the guest kernel $package (not installed)"
    part=$home.part
    rm -rf "$home" "$part"
    unpack_deb "$package" "$part/unpacked"
    modules=$(find "$part/unpacked" -maxdepth 4 -type d -path '*/lib/modules/*' -prune | sed -n 1p)
    version=${modules##*/}
    [ -e "$part/unpacked/boot/vmlinuz-${version:-none}" ] ||
        give_up "$package holds no kernel with modules." "Name another one with VK_KERNEL_PACKAGE."
    PATH="$PATH:/usr/sbin:/sbin" depmod -b "${modules%/lib/modules/*}" "$version" ||
        give_up "depmod failed on the modules of $package."
    ln -s "unpacked/boot/vmlinuz-$version" "$part/vmlinuz"
    ln -s "${modules#"$part/"}" "$part/modules"
    echo "$version" >"$part/version"
    echo "$meta" >"$part/package"
    mv "$part" "$home"
fi
ln -sfn "$home" "$link"
