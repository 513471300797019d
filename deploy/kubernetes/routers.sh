#!/bin/sh
# Writes base/router-0.json5 to router-2.json5: the official routers' configuration with the access
# control of base/manifest.yaml. Run it after each change of clients or routers there.
#   routers.sh FOLDER [lean-server]     FOLDER has ca.pem, server.pem and server.key (../../examples/router/ca.sh)
set -eu
folder=$(cd "${1:?the folder of the certificates}" && pwd) program=${2:-lean-server}
cd "$(dirname "$0")/base"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sed "s,/etc/edge-rt/tls/tls\.crt,$folder/server.pem,; s,/etc/edge-rt/tls/tls\.key,$folder/server.key,; s,/etc/edge-rt/tls/ca\.crt,$folder/ca.pem," manifest.yaml >"$scratch/manifest.yaml"
"$program" acl --manifest "$scratch/manifest.yaml" -o "$scratch/acl"
dial=
for n in 0 1 2; do
	{
		echo "// Of routers.sh. Router $n dials the routers before it."
		cat <<END
{
  mode: "router",
  listen: { endpoints: ["tls/0.0.0.0:7447"] },
  connect: { endpoints: [$dial] },
  scouting: { multicast: { enabled: false } },
  transport: { link: { tls: {
    enable_mtls: true,
    root_ca_certificate: "/etc/edge-rt/tls/ca.crt",
    listen_certificate: "/etc/edge-rt/tls/tls.crt",
    listen_private_key: "/etc/edge-rt/tls/tls.key",
    connect_certificate: "/etc/edge-rt/tls/tls.crt",
    connect_private_key: "/etc/edge-rt/tls/tls.key",
  } } },
  access_control:
END
		cat "$scratch/acl"
		echo '}'
	} >router-$n.json5
	dial="${dial:+$dial, }\"tls/router-$n.routers:7447\""
done
