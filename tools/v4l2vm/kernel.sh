#!/bin/sh
# kernel.sh ARCH DIR: puts Debian's stock kernel for amd64 or arm64 and the
# modules that the capture tests need into DIR: vmlinuz, *.ko in load order in
# DIR/order, and v4l2loopback.ko, built from Debian's source.
#
# Packages are only unpacked, never installed, and apt works in folders of its
# own below DIR: the system's package lists and architectures stay unchanged.
set -eu
arch=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
host=$(dpkg --print-architecture)

say() { printf 'kernel: %s\n' "$*" >&2; }

command -v apt-get >/dev/null 2>&1 || { say "this needs Debian's apt-get, here or in a container"; exit 3; }
PATH=$PATH:/sbin:/usr/sbin

# apt for one architecture, in folders of its own.
apt() { # architecture command...
	a=$1
	shift
	mkdir -p "$dir/apt-$a/lists/partial" "$dir/apt-$a/cache/archives/partial"
	apt-get -q -o Dpkg::Use-Pty=0 -o APT::Sandbox::User="$(id -un)" -o APT::Architecture="$a" -o APT::Architectures::="$a" \
		-o Acquire::Languages=none -o Acquire::Retries=3 -o Dir::State::lists="$dir/apt-$a/lists" -o Dir::Cache="$dir/apt-$a/cache" \
		-o Dir::State::status=/dev/null "$@"
}
depends() { # architecture package pattern: the dependency that matches
	apt-cache -o APT::Architecture="$1" -o APT::Architectures::="$1" -o Dir::State::lists="$dir/apt-$1/lists" -o Dir::Cache="$dir/apt-$1/cache" \
		-o Dir::State::status=/dev/null depends "$2" | sed -n "s/^ *Depends: \($3\)\$/\1/p" | head -n 1
}
unpack() { # architecture package...
	a=$1
	shift
	(cd "$dir/debs" && apt "$a" download "$@" >/dev/null)
	for p in "$@"; do
		dpkg-deb --fsys-tarfile "$(ls "$dir/debs/${p}"_*_"$a".deb "$dir/debs/${p}"_*_all.deb 2>/dev/null | head -n 1)" | tar x -C "$dir/tree"
	done
}

mkdir -p "$dir/debs"
apt "$arch" update >/dev/null
image=$(depends "$arch" "linux-image-$arch" 'linux-image-[0-9].*')
[ -n "$image" ] || { say "no linux-image-$arch in the package lists: this needs Debian"; exit 3; }
version=${image#linux-image-}
if [ "$(cat "$dir/version" 2>/dev/null)" = "$version" ] && [ -s "$dir/v4l2loopback.ko" ]; then
	rm -rf "$dir/debs"
	exit 0
fi
say "unpacking $image and building v4l2loopback for it"
rm -rf "$dir/tree" "$dir"/*.ko "$dir/order" "$dir/version"
mkdir -p "$dir/tree/boot" "$dir/tree/lib/modules"
(cd "$dir/debs" && apt "$arch" download "$image" >/dev/null)
# Only the needed files of 400 MB.
dpkg-deb --fsys-tarfile "$dir"/debs/"$image"_*.deb | tar x -C "$dir/tree" --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.*' \
	'./lib/modules/*/kernel/drivers/media/*' './lib/modules/*/kernel/drivers/video/*' './lib/modules/*/kernel/drivers/i2c/*' '*/drivers/dma-buf/*' \
	2>/dev/null || true
[ -e "$dir/tree/boot/vmlinuz-$version" ] || { say "$image holds no kernel"; exit 1; }
cp "$dir/tree/boot/vmlinuz-$version" "$dir/vmlinuz"

# v4l2loopback: its source package fits every architecture; the programs among the
# headers run on the building machine, so they come from the host's architecture.
common=$(depends "$arch" "linux-headers-$version" 'linux-headers-.*-common')
[ "$host" = "$arch" ] || apt "$host" update >/dev/null
unpack "$arch" "linux-headers-$version" "$common" v4l2loopback-dkms
kbuild=$(depends "$arch" "linux-headers-$version" 'linux-kbuild-.*')
unpack "$host" "$kbuild"
# The headers' makefiles and links name absolute paths.
headers=$dir/tree/usr/src/linux-headers-$version
sed -i "s,/usr/src/,$dir/tree/usr/src/,g" "$headers/Makefile"
for link in scripts tools; do
	ln -sfn "$dir/tree/usr/lib/$kbuild/$link" "$headers/$link"
	ln -sfn "$dir/tree/usr/lib/$kbuild/$link" "$dir/tree/usr/src/$common/$link"
done
cross=
[ "$host" = "$arch" ] || cross="CROSS_COMPILE=$([ "$arch" = arm64 ] && echo aarch64 || echo x86_64)-linux-gnu-"
kernel_arch=$([ "$arch" = arm64 ] && echo arm64 || echo x86_64)
source=$(ls -d "$dir"/tree/usr/src/v4l2loopback-*)
# shellcheck disable=SC2086 # cross is empty or one word
make -s -C "$headers" M="$source" ARCH="$kernel_arch" $cross CC="${cross#CROSS_COMPILE=}gcc" modules >"$dir/build.log" 2>&1 ||
	{ tail -n 20 "$dir/build.log" >&2; say "v4l2loopback does not build, see $dir/build.log"; exit 1; }
cp "$source/v4l2loopback.ko" "$dir/"

depmod -b "$dir/tree" "$version"
modprobe -d "$dir/tree" -S "$version" --show-depends vivid | while read -r _ path _; do
	cp "$path" "$dir/"
	basename "$path"
done >"$dir/order.new"
grep -q '^vivid.ko' "$dir/order.new" || { say "$image has no vivid module"; exit 1; }
mv "$dir/order.new" "$dir/order"
rm -rf "$dir/tree" "$dir/debs" "$dir/apt-$arch" "$dir/apt-$host"
echo "$version" >"$dir/version"
