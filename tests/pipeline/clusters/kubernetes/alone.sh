#!/bin/sh
# Runs a command as if it had this machine to itself, so that a kubelet can be tried without changing the machine:
# namespaces of its own for network, mounts, processes and control groups. Whatever it leaves behind ends with it.
# Needs root.
set -eu

if [ "${1:-}" != inside ]; then
    if [ "$(id -u)" != 0 ]; then
        echo 'a kubelet needs root: sudo make test-kubernetes' >&2
        exit 1
    fi
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        # Version 2: limits are for groups that hold no process but groups, so one that holds only this.
        mkdir -p /sys/fs/cgroup/headrace-kubernetes
        echo $$ >/sys/fs/cgroup/headrace-kubernetes/cgroup.procs
    fi
    exec unshare --net --mount --pid --cgroup --fork --mount-proc -- "$0" inside "$@"
fi
shift
if [ $$ != 1 ]; then  # before it mounts over what others use, and ends all processes that it sees
    echo 'not in namespaces of its own' >&2
    exit 1
fi

# The address of the node, and what its pods are plugged into.
ip link set lo up
ip link add cni0 type bridge
ip address add 10.88.0.1/24 dev cni0
ip link set cni0 up

# What is written there is seen by nobody else.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/var /run/work /run/sysctl
mount -t overlay -o lowerdir=/var,upperdir=/run/var,workdir=/run/work overlay /var

# A kubelet sets these for the whole machine. It may think so.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    stands_in=/run/sysctl/$(basename "${setting%=*}")
    echo "${setting#*=}" >"$stands_in"
    mount --bind "$stands_in" "/proc/sys/${setting%=*}"
done

# Control groups below the one that this was started in: limits above it still hold.
if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    umount /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir -p /sys/fs/cgroup/init
    while read -r pid; do echo "$pid" >/sys/fs/cgroup/init/cgroup.procs; done </sys/fs/cgroup/cgroup.procs
    sed 's/[^ ]*/+&/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
else
    awk '$3 == "cgroup" { print $2, $4 }' /proc/mounts | while read -r place options; do
        umount "$place"
        # Only what names the controllers: the rest is about the mount.
        mount -t cgroup -o "$(echo "$options" | tr , '\n' | grep -vx 'rw\|ro\|relatime\|nosuid\|nodev\|noexec' | paste -sd,)" \
            cgroup "$place"
    done
fi

status=0
"$@" || status=$?
# All but this one, which is the first of its namespace.
kill -9 -1 2>/dev/null || true
wait
for groups in /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods; do
    [ ! -d "$groups" ] || find "$groups" -depth -type d -exec rmdir {} + 2>/dev/null || true
done
exit "$status"
