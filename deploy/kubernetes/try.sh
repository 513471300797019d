#!/bin/sh
# Sends every overlay to a real API server, as a dry run: kube-apiserver, etcd and kubectl at exact
# versions, which Go's module proxy has. The first build takes minutes; CACHE keeps it.
set -eu
cd "$(dirname "$0")"
cache=${CACHE:-../../.cache/kubernetes} kubernetes=v1.34.2 etcd=v3.6.5
mkdir -p "$cache" && cache=$(cd "$cache" && pwd)
if [ ! -x "$cache/bin/kubectl" ]; then
	mkdir -p "$cache/source/etcd" "$cache/bin" && cd "$cache/source"
	printf '//go:build tools\n\npackage tools\n\nimport (\n\t_ "k8s.io/kubernetes/cmd/kube-apiserver"\n\t_ "k8s.io/kubernetes/cmd/kubectl"\n)\n' >tools.go
	printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' >etcd/main.go
	printf 'module kube\n\ngo 1.24.0\n\nrequire (\n\tk8s.io/kubernetes %s\n\tgo.etcd.io/etcd/server/v3 %s\n)\n' $kubernetes $etcd >go.mod
	# The parts of Kubernetes that its own go.mod takes from its own tree.
	go mod download -json k8s.io/kubernetes@$kubernetes | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p' | xargs sed -n 's,^\s*\(k8s.io/[^ ]*\) => ./staging/.*,\1,p' |
		sort -u | while read -r part; do echo "replace $part => $part v0${kubernetes#v1}"; done >>go.mod
	go mod tidy -e >tidy.log 2>&1
	go build -o "$cache/bin/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl ./etcd
	cd - >/dev/null
fi
scratch=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || true; wait; rm -rf "$scratch"' EXIT
port=$((26000 + $$ % 1000))
"$cache/bin/etcd" --data-dir "$scratch/etcd" --listen-client-urls http://127.0.0.1:$port --advertise-client-urls http://127.0.0.1:$port \
	--listen-peer-urls http://127.0.0.1:$((port + 1000)) --log-level error >"$scratch/etcd.log" 2>&1 &
pids=$!
openssl genrsa -out "$scratch/key" 2048 2>/dev/null
echo 'try,try,try,system:masters' >"$scratch/tokens"
"$cache/bin/kube-apiserver" --etcd-servers http://127.0.0.1:$port --secure-port $((port + 2000)) --bind-address 127.0.0.1 --cert-dir "$scratch" \
	--service-account-key-file "$scratch/key" --service-account-signing-key-file "$scratch/key" --service-account-issuer https://try \
	--service-cluster-ip-range 10.0.0.0/16 --token-auth-file "$scratch/tokens" --authorization-mode RBAC >"$scratch/apiserver.log" 2>&1 &
pids="$pids $!"
kubectl() { HOME=$scratch "$cache/bin/kubectl" --kubeconfig /dev/null --server https://127.0.0.1:$((port + 2000)) --insecure-skip-tls-verify --token try "$@"; }
tries=0
until [ "$(kubectl get --raw /readyz 2>/dev/null)" = ok ]; do
	tries=$((tries + 1))
	[ $tries -lt 120 ] || { tail -n 5 "$scratch"/*.log >&2; echo 'got no API server in two minutes' >&2; exit 1; }
	sleep 1
done
for overlay in lab fleet/east fleet/west; do
	kubectl kustomize "$overlay" >"$scratch/all.yaml"
	# A dry run creates no namespace, so what is in it needs a real one.
	sed '/^---$/,$d' "$scratch/all.yaml" | kubectl apply -f - >/dev/null
	kubectl apply --dry-run=server --validate=strict -f "$scratch/all.yaml" >"$scratch/applied" || { echo "the API server refuses $overlay" >&2; exit 1; }
	! kubectl apply --dry-run=server -f "$scratch/all.yaml" 2>&1 | grep -i warning || { echo "$overlay: got a warning" >&2; exit 1; }
	echo "$overlay: $(grep -c . "$scratch/applied") objects accepted by $kubernetes"
done
