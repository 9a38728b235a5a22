# A hub, a GitLab stand-in with one project, and what a node and a daemon need before their units are
# installed, on one host.
set -eu
cat >>/etc/passwd <<'END'
vk:x:990:990::/var/lib/vk:/usr/sbin/nologin
vk-gitlab:x:991:991::/var/lib/vk-gitlab:/usr/sbin/nologin
vk-hub:x:992:992::/var/lib/vk-hub:/usr/sbin/nologin
END
cat >>/etc/group <<'END'
vk:x:990:
vk-gitlab:x:991:
vk-hub:x:992:
END
echo '127.0.0.1 localhost' >/etc/hosts
export VK_ALLOW_PROCESS_VMM=for-tests
bin=/opt/vk

# The node's disk, mounted by a unit of its own.
mkdir -p /disk /srv/vk /srv/gate
mount -t tmpfs -o mode=0700,uid=990,gid=990 disk /disk
chown vk:vk /srv/gate
cat >/etc/systemd/system/srv-vk.mount <<'END'
[Mount]
What=/disk
Where=/srv/vk
Type=none
Options=bind
END

mkdir -p /etc/vk /etc/vk-gitlab /srv/lab/project /etc/vk-hub
cat >/etc/vk/config.toml <<'END'
state_dir = "/srv/vk/state"
[node]
runner = "none"
[executor]
image = "busybox"
[executor.vm]
process_agent = "/opt/vk/vk-agent"
cpus = 1
mem = "256M"
[executor.schedule]
mem_budget = "1G"
disk_budget = "8G"
END
printf 'addr = "127.0.0.1:8443"\ndata_dir = "/var/lib/vk-hub"\n[gitlab]\napprove = "all"\n' >/etc/vk-hub/hub.toml
cat >/etc/vk-gitlab/config.toml <<'END'
concurrent = 2
[gitlab]
url = "http://127.0.0.1:8929"
[[runners]]
name = "one"
token_file = "token"
check_interval = 1
[runners.envelope]
mem = "256M"
cpus = 1
disk = "1G"
END

cd /srv/lab/project
git init --quiet --initial-branch main
git -c user.name=a -c user.email=a@example.com commit --quiet --allow-empty --message one

install -d -o vk-hub -g vk-hub -m 0700 /var/lib/vk-hub
ln -s $bin/vk-hub /usr/bin/vk-hub
hub() {
    runuser -u vk-hub -- vk-hub --config /etc/vk-hub/hub.toml "$@"
}
hub init
systemctl daemon-reload
systemctl enable --now vk-hub
systemd-run --quiet --unit lab $bin/vk-lab serve --addr 127.0.0.1:8929 --project /srv/lab/project \
    --token-file /srv/lab/token --admin /srv/lab/admin --state /srv/lab/state
until [ -s /srv/lab/token ] && [ -S /srv/lab/admin ]; do sleep 0.2; done
install -o vk-gitlab -m 0600 /srv/lab/token /etc/vk-gitlab/token

# A token is made once the hub serves.
token() {
    until hub token create "$@" 2>/run/refused; do sleep 0.2; done
}
systemctl start srv-vk.mount
token | runuser -u vk -- $bin/vk node join https://localhost:8443 --token -
runuser -u vk -- $bin/vk image import --state-dir /srv/vk/state /opt/test/busybox.tar busybox
install -d -o vk-gitlab -g vk-gitlab -m 0700 /var/lib/vk-gitlab
token --kind gitlab | runuser -u vk-gitlab -- $bin/vk-gitlab -c /etc/vk-gitlab/config.toml join \
    https://localhost:8443 --token -
