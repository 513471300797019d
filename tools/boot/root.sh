#!/bin/sh
# root.sh DIR SUITE ARCH [KERNEL]: makes DIR, a new Debian with systemd; with the package KERNEL of a
# kernel also with udev and initrd.img. A root that exists is kept. It wants root and mmdebstrap, and
# qemu-user-static for another architecture.
set -eu
dir=$1
[ ! -e "$dir/made" ] || exit 0
rm -rf --one-file-system "$dir" && mkdir -p "$dir"
mmdebstrap -q --mode=root --architectures="$3" --variant=minbase --include="systemd,systemd-sysv,dbus,procps${4:+,udev,$4}" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$2" "$dir.tar"
tar -C "$dir" -xf "$dir.tar"
rm "$dir.tar"
printf "127.0.0.1 localhost\n" >"$dir/etc/hosts" # as the installer does
touch "$dir/made"
