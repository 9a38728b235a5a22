#!/bin/busybox sh
# The first process of a host in a VM: its root is an image with a layer in memory above it, its
# programs are a disk of their own. Then systemd takes over.
set -e
b=/bin/busybox
$b mkdir -p /proc /lower /over /host
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/vk/$module"; done </vk/modules.list
$b mount -t erofs -o ro /dev/vda /lower
$b mount -t tmpfs -o mode=755 over /over
$b mkdir /over/upper /over/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work root /host
$b mkdir -p /host/opt/vk /host/opt/test
$b mount -t ext4 -o ro /dev/vdb /host/opt/vk
$b cp /test/* /host/opt/test/

units=/host/etc/systemd/system
echo 76b00000000000000000000000000076 >/host/etc/machine-id
# Nobody logs in here, and nothing is done by the clock.
for unit in getty.target serial-getty@ttyS0.service timers.target systemd-random-seed.service \
    systemd-tmpfiles-setup.service systemd-update-utmp.service systemd-pcrphase.service; do
    $b ln -s /dev/null "$units/$unit"
done
$b cp /test/desk.service "$units/"
$b mkdir -p "$units/multi-user.target.wants"
$b ln -s ../desk.service "$units/multi-user.target.wants/"
$b umount /proc
$b mount -o move /dev /host/dev
exec $b switch_root /host /sbin/init
