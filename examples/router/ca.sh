#!/bin/sh
# A small certificate authority for trying out TLS (OpenSSL 3):
#
#   ./ca.sh NAME [HOST]...    makes certificates/NAME.pem and certificates/NAME.key
#
# The first call makes the authority, certificates/ca.pem and ca.key. NAME becomes the
# common name, which a router's access control reads, and a DNS name, which lean-server
# reads: a robot's id, or a name by which a router or a server is dialled or listed in
# the manifest. HOST are further names and addresses for dialling. DAYS (365) is the
# validity.
#
# Keep ca.key away from robots and servers: its holder can make any identity.
set -eu
cd "$(dirname "$0")"
umask 077
[ $# -gt 0 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p certificates
cd certificates
name=$1
for text in "$@"; do
	case $text in
	'' | *[!A-Za-z0-9_.:-]*) echo "ca.sh: got '$text', want a name of A-Za-z0-9_.- or an address" >&2; exit 2 ;;
	esac
done
[ "$name" != ca ] || { echo "ca.sh: ca is the authority's own name, choose another" >&2; exit 2; }
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

if [ ! -e ca.pem ]; then
	# shellcheck disable=SC2086 # the options are meant to split
	openssl req -x509 $key -days 3650 -subj "/CN=fleet CA" -addext basicConstraints=critical,CA:TRUE \
		-addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2>ca.log || { cat ca.log >&2; exit 1; }
fi
names="DNS:$name"
shift
for host in "$@"; do
	case $host in
	*:*) names="$names,IP:$host" ;; # IPv6
	*[!0-9.]*) names="$names,DNS:$host" ;;
	*) names="$names,IP:$host" ;;
	esac
done
# shellcheck disable=SC2086
openssl req $key -subj "/CN=$name" -addext "subjectAltName=$names" -addext extendedKeyUsage=serverAuth,clientAuth \
	-keyout "$name.key.new" -out "$name.csr" 2>ca.log &&
	openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days "${DAYS:-365}" \
		-copy_extensions copyall -out "$name.pem.new" 2>ca.log || { cat ca.log >&2; rm -f "$name.key.new" "$name.pem.new"; exit 1; }
chmod 644 ca.pem "$name.pem.new"
mv "$name.key.new" "$name.key" # both are whole before either takes its place: a program may read them now
mv "$name.pem.new" "$name.pem"
rm -f "$name.csr" ca.log
echo "certificates/$name.pem and its key: $names, for ${DAYS:-365} days"
