#!/bin/sh
# Makes the rehearsal's network in a mount and a network namespace of its own, which end with it: a bridge, at which
# this machine is 10.77.0.1, and a namespace with a cable to the bridge for each line "ADDRESS NAME" of the file HOSTS.
set -eu
hosts=$1
mount --make-rprivate /
mount --bind "$hosts" /etc/hosts
mount -t tmpfs rehearsal /run
ip link set lo up
ip link add bridge type bridge
ip addr add 10.77.0.1/16 dev bridge
ip link set bridge up
while read -r address name; do
	ip netns add "$name"
	ip link add "$name" type veth peer name eth0 netns "$name"
	ip link set "$name" master bridge up
	ip -n "$name" link set lo up
	ip -n "$name" addr add "$address/16" dev eth0
	ip -n "$name" link set eth0 up
done <"$hosts"
