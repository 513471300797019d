#!/bin/sh
# root.sh DIR SUITE: makes DIR, a new Debian with systemd. A root that exists is kept. It wants root
# and mmdebstrap.
set -eu
dir=$1
[ ! -e "$dir/made" ] || exit 0
rm -rf --one-file-system "$dir" && mkdir -p "$dir"
mmdebstrap -q --mode=root --variant=minbase --include=systemd,systemd-sysv,dbus,procps --dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$2" "$dir.tar"
tar -C "$dir" -xf "$dir.tar"
rm "$dir.tar"
printf "127.0.0.1 localhost\n" >"$dir/etc/hosts" # as the installer does
touch "$dir/made"
