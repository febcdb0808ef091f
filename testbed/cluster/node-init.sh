#!/bin/bash
# The first process of a node, in mount and PID namespaces of its own: when it ends, everything on the node ends.
# usage: node-init.sh NODE_DIRECTORY PROGRAMS KUBELET_FLAG...
# Every node has its own /var/lib/kubelet, /run/containerd and so on, so kubelets run side by side with their standard paths (the
# device plugins' directory is fixed, and two kubelets that share /var/log/pods delete each other's logs).
set -eu
node=$1 programs=$2
shift 2
mount --make-rshared /
while read -r own standard; do
  mount --bind "$node/$own" "$standard"
done <<'MOUNTS'
kubelet /var/lib/kubelet
containerd /var/lib/containerd
run /run/containerd
pods /var/log/pods
containers /var/log/containers
netns /run/netns
MOUNTS
mount --make-rshared /var/lib/kubelet
mount --make-rshared /run/netns
# Names outside the cluster are refused at once here; the machine's own servers are out of reach, and would be waited for.
if [ -f /etc/resolv.conf ]; then mount --bind "$node/resolv.conf" /etc/resolv.conf; fi
export PATH="$programs:$PATH"
containerd --config "$node/containerd.toml" >>"$node/containerd.log" 2>&1 &
if [ -f "$node/devices.json" ]; then kube gpu-plugin --devices "$node/devices.json" >>"$node/gpu-plugin.log" 2>&1 & fi
# A kubelet gives up at once where no runtime answers.
for _ in $(seq 600); do [ -S /run/containerd/containerd.sock ] && break || sleep 0.1; done
kube kubelet "$@" >>"$node/kubelet.log" 2>&1 &
# bash also reaps what Pods leave behind.
wait -n
