#!/bin/sh
# Installs dist/ as a stranger would and waits for the first ticks of the demo:
#   try.sh wheels PYTHON…     in new environments of these Pythons
#   try.sh pip SUITE…         with pip in new Debian roots (bookworm, trixie); wants root and mmdebstrap
#   try.sh apt SUITE…         with apt in such roots; then upgrade, removal and purge
# It prints the seconds from nothing to the first tick, and fails above the limits, 60 s and 30 s.
set -eu
cd "$(dirname "$0")/../.."
export LC_ALL=C
way=${1:?wheels, pip or apt} dist=$PWD/dist
shift
scratch=$(mktemp -d "${TMPDIR:-/tmp}/try.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
port=$((17000 + $$ % 1000))

# The programs in the folder $1, in the root $2 or in this system.
first_tick() {
	in=${2:+chroot "$2"}
	$in env HOME=/tmp "$1/lean-server" --demo --listen tcp/127.0.0.1:$port --health-port 0 >"$scratch/server.log" 2>&1 &
	server=$!
	ok=0
	$in env HOME=/tmp "$1/edge-rt" --bus sim --camera top=sim --connect tcp/127.0.0.1:$port --record off --duration 2s \
		--json - >"$scratch/edge.json" 2>"$scratch/edge.log" || ok=$?
	kill $server && wait $server >/dev/null || true
	ticks=$(sed -n 's/^ *"ticks": \([0-9]*\).*/\1/p' "$scratch/edge.json" | head -n 1)
	if [ $ok != 0 ] || [ "${ticks:-0}" -lt 60 ]; then
		cat "$scratch/server.log" "$scratch/edge.log" "$scratch/edge.json" >&2
		echo "got exit code $ok and ${ticks:-no} ticks, want 0 and 60 at least" >&2
		exit 1
	fi
}

# took NAME LIMIT START reports the seconds since START, without the two seconds of the run.
took() {
	seconds=$(($(date +%s) - $3 - 2))
	echo "$1: $seconds s from nothing to the first tick"
	[ $seconds -le "$2" ] || { echo "$1: got $seconds s, want $2 s at most" >&2; exit 1; }
}

new_root() {
	tar=${EDGERT_ROOTS:-$scratch}/$1.tar
	[ -e "$tar" ] || mmdebstrap -q --mode=root --variant=minbase --include=python3,python3-venv,ca-certificates \
		"--keyring=/usr/share/keyrings/debian-archive-keyring.gpg" "$1" "$tar"
	root=$scratch/root
	mkdir "$root" && tar -C "$root" -xf "$tar"
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
	cp -r "$dist" "$root/dist"
	mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --make-rslave "$root/dev"
	trap 'umount -l "$root/proc" "$root/dev" 2>/dev/null || true; rm -rf --one-file-system "$scratch"' EXIT
}

end_root() { umount -l "$root/proc" "$root/dev" && rm -rf --one-file-system "$root"; }

in_root() {
	chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -ec "$1" >"$scratch/root.log" 2>&1 || { cat "$scratch/root.log" >&2; echo "in the new root, failed: $1" >&2; exit 1; }
}

files() { (cd "$root" && find . -xdev \( -path ./var/log -o -path ./var/cache -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./run -o -path ./tmp -o -path ./root \) -prune -o -print) | sed 's/^.//' | sort; }

# left EVENT PATTERN fails for a file that has come since the beginning, unless it matches.
left() {
	# The users stay, as Debian's do; the others are the backups of their files.
	files | comm -13 "$scratch/before" - | grep -Ev "$2" | grep -Ev '^/etc/(passwd|group|shadow|gshadow)-$|^/etc/.*\.lock$' >"$scratch/left" || true
	[ ! -s "$scratch/left" ] || { echo "$1 left:" >&2; cat "$scratch/left" >&2; exit 1; }
}

# upgrade installs the same packages as version 99 with other conffiles, over a conffile that its owner
# has changed, which stays.
upgrade() {
	echo '# of its owner' >>"$root/etc/edge-rt/demo.yaml"
	in_root 'mkdir /new && cd /new && for deb in /dist/edge-rt*_$(dpkg --print-architecture).deb /dist/lean-server_*_$(dpkg --print-architecture).deb; do
		rm -rf x && dpkg-deb -R $deb x && version=$(dpkg-deb -f $deb Version) && sed -i "s/$version/99/" x/DEBIAN/control
		for conffile in $(cat x/DEBIAN/conffiles 2>/dev/null); do echo "# of version 99" >>x$conffile; done
		dpkg-deb -b x . >/dev/null
	done; apt-get -q -y -o Dpkg::Options::=--force-confold install --no-install-recommends ./*.deb; rm -r /new'
	grep -q '# of its owner' "$root/etc/edge-rt/demo.yaml" || { echo "the upgrade changed its owner's conffile" >&2; exit 1; }
	grep -q '# of version 99' "$root/etc/lean-server/server.yaml" || { echo 'the upgrade kept an old conffile' >&2; exit 1; }
	first_tick /usr/bin "$root"
}

for name; do
	case $way in
	wheels)
		start=$(date +%s)
		"$name" -m venv "$scratch/venv"
		"$scratch/venv/bin/pip" install -q --disable-pip-version-check --no-cache-dir --no-index --find-links "$dist" edge-rt
		first_tick "$scratch/venv/bin"
		took "pip, $("$name" --version)" 60 "$start"
		"$scratch/venv/bin/bench" --version
		"$scratch/venv/bin/pip" uninstall -q -y edge-rt
		left=$(cd "$scratch/venv" && find . -type f -path '*edge?rt*')
		[ -z "$left" ] || { echo "pip uninstall left $left" >&2; exit 1; }
		rm -rf "$scratch/venv"
		;;
	pip)
		new_root "$name"
		start=$(date +%s)
		chroot "$root" sh -c "python3 -m venv /opt/try && PIP_CERT=/etc/ssl/certs/ca-certificates.crt /opt/try/bin/pip install -q --disable-pip-version-check --no-cache-dir --no-index --find-links /dist edge-rt"
		first_tick /opt/try/bin "$root"
		took "pip, $name" 60 "$start"
		end_root
		;;
	apt)
		new_root "$name"
		files >"$scratch/before"
		start=$(date +%s)
		in_root 'apt-get -q update && apt-get -q -y install --no-install-recommends /dist/*_$(dpkg --print-architecture).deb'
		first_tick /usr/bin "$root"
		took "apt, $name" 30 "$start"
		in_root 'edge-rt --version && lean-server --version && bench --version && id edge-rt && id lean-server'
		upgrade
		in_root 'apt-get -q -y remove edge-rt lean-server edge-rt-common edge-rt-onnxruntime && apt-get -q -y autoremove --purge'
		left remove '^/etc/(edge-rt|lean-server)(/(demo|server)\.yaml(\.dpkg-dist)?)?$'
		in_root 'dpkg --purge edge-rt lean-server edge-rt-common edge-rt-onnxruntime'
		left purge '^$'
		end_root
		;;
	*) echo "got $way, want wheels, pip or apt" >&2; exit 2 ;;
	esac
done
