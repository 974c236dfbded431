#!/bin/sh
# The first process of an instance. It is started in a network and a mount namespace of its own, sets
# them up, says so on its standard output, and holds them until it is ended. All other processes of the
# instance join these namespaces, so nothing they mount or configure can outlive them.
#
#   namespaces.sh BRIDGE GATEWAY SERVICES RESOLV_CONF
set -eu
bridge=$1 gateway=$2 services=$3 resolv_conf=$4

# What containerd, the CNI plugins and the kubelet write to fixed places goes away with the instance. Two
# of these places do not exist on a fresh machine; there they stay behind as empty directories.
mkdir -p /var/lib/cni /var/lib/kubelet
for directory in /run /var/log /var/lib/cni /var/lib/kubelet; do
    mount -t tmpfs -o mode=755 karst "$directory"
done
mkdir -p /run/lock

# Programs run inside resolve the names of pods and services. The file may be a link into /run, which
# is empty now.
target=$(readlink -m /etc/resolv.conf)
mkdir -p "$(dirname "$target")"
[ -e "$target" ] || : >"$target"
mount --bind "$resolv_conf" "$target"

ip link set lo up
ip link add "$bridge" type bridge
ip address add "$gateway" dev "$bridge"
ip link set "$bridge" up
# There is no way out of here, but a service's address needs some route before kube-proxy's rules can
# turn it into a pod's.
ip route add "$services" dev "$bridge"

echo 1 >/proc/sys/net/ipv4/ip_forward
# Answers of a service's pod to a pod on the same bridge must pass through kube-proxy's rules too.
if [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]; then
    echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
fi

echo ready
exec sleep infinity >/dev/null
