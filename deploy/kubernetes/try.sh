#!/bin/sh
# The manifests at a real API server: Kubernetes, etcd and kwok at exact versions, which Go's module
# proxy has. The first build takes minutes; CACHE keeps it.
#   try.sh          sends every overlay as a dry run
#   try.sh play     runs lab and fleet/east on ten fake nodes with a GPU each (play.py), and prints a table
set -eu
cd "$(dirname "$0")"
case ${1:-} in '' | play) ;; *) echo "try.sh: got '$1', want nothing or play" >&2; exit 2 ;; esac
cache=${CACHE:-../../.cache/kubernetes} kubernetes=v1.34.2 etcd=v3.6.5 kwok=v0.7.0
mkdir -p "$cache" && cache=$(cd "$cache" && pwd)
programs='./etcd k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl'
[ -z "${1:-}" ] || programs="$programs k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler sigs.k8s.io/kwok/cmd/kwok"
if [ ! -x "$cache/bin/${programs##*/}" ]; then
	echo 'building Kubernetes, which takes minutes' >&2
	mkdir -p "$cache/source/etcd" "$cache/bin" && cd "$cache/source"
	{
		printf '//go:build tools\n\npackage tools\n\nimport (\n'
		for program in kube-apiserver kube-controller-manager kube-scheduler kubectl; do printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' $program; done
		printf '\t_ "sigs.k8s.io/kwok/cmd/kwok"\n)\n'
	} >tools.go
	printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' >etcd/main.go
	printf 'module kube\n\ngo 1.24.0\n\nrequire (\n\tk8s.io/kubernetes %s\n\tgo.etcd.io/etcd/server/v3 %s\n\tsigs.k8s.io/kwok %s\n)\n' $kubernetes $etcd $kwok >go.mod
	# The parts of Kubernetes that its own go.mod takes from its own tree.
	go mod download -json k8s.io/kubernetes@$kubernetes | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p' | xargs sed -n 's,^\s*\(k8s.io/[^ ]*\) => ./staging/.*,\1,p' |
		sort -u | while read -r part; do echo "replace $part => $part v0${kubernetes#v1}"; done >>go.mod
	# kwok v0.7.0 names a constant that this apimachinery no longer has; v0.8.0 does not resolve beside Kubernetes 1.34.
	rm -rf kwok && cp -r "$(go mod download -json sigs.k8s.io/kwok@$kwok | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" kwok && chmod -R u+w kwok
	sed -i 's,metav1\.InitialEventsListBlueprintAnnotationKey,"kubernetes.io/initial-events-list-blueprint",' kwok/pkg/utils/informer/informer.go
	echo 'replace sigs.k8s.io/kwok => ./kwok' >>go.mod
	go mod tidy -e >tidy.log 2>&1
	# shellcheck disable=SC2086 # the names are meant to split
	go build -o "$cache/bin/" $programs
	cd - >/dev/null
fi
scratch=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || true; wait; rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# shellcheck disable=SC2046 # three ports that are free
set -- "${1:-}" $(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*[s.getsockname()[1] for s in sockets])')
"$cache/bin/etcd" --data-dir "$scratch/etcd" --listen-client-urls "http://127.0.0.1:$2" --advertise-client-urls "http://127.0.0.1:$2" \
	--listen-peer-urls "http://127.0.0.1:$3" --log-level error >"$scratch/etcd.log" 2>&1 &
pids=$!
openssl genrsa -out "$scratch/key" 2048 2>/dev/null
echo 'try,try,try,system:masters' >"$scratch/tokens"
"$cache/bin/kube-apiserver" --etcd-servers "http://127.0.0.1:$2" --secure-port "$4" --bind-address 127.0.0.1 --cert-dir "$scratch" \
	--service-account-key-file "$scratch/key" --service-account-signing-key-file "$scratch/key" --service-account-issuer https://try \
	--service-cluster-ip-range 10.0.0.0/16 --token-auth-file "$scratch/tokens" --authorization-mode RBAC >"$scratch/apiserver.log" 2>&1 &
pids="$pids $!"
cat >"$scratch/kubeconfig" <<END
{apiVersion: v1, kind: Config, current-context: try,
 clusters: [{name: try, cluster: {server: "https://127.0.0.1:$4", insecure-skip-tls-verify: true}}],
 users: [{name: try, user: {token: try}}], contexts: [{name: try, context: {cluster: try, user: try}}]}
END
kubectl() { HOME=$scratch "$cache/bin/kubectl" --kubeconfig "$scratch/kubeconfig" "$@"; }
tries=0
until [ "$(kubectl get --raw /readyz 2>/dev/null)" = ok ]; do
	tries=$((tries + 1))
	[ $tries -lt 120 ] || { tail -n 5 "$scratch"/*.log >&2; echo 'got no API server in two minutes' >&2; exit 1; }
	sleep 1
done
if [ "$1" = play ]; then
	python3 -Bu play.py "$cache/bin" "$scratch" "https://127.0.0.1:$4" &
	pids="$! $pids"
	wait $! # in the background, since a shell that waits for a command in the foreground takes no signal
	exit
fi
for overlay in lab fleet/east fleet/west; do
	kubectl kustomize "$overlay" >"$scratch/all.yaml"
	# A dry run creates no namespace, but objects in a namespace need one that exists.
	sed '/^---$/,$d' "$scratch/all.yaml" | kubectl apply -f - >/dev/null
	kubectl apply --dry-run=server --validate=strict -f "$scratch/all.yaml" >"$scratch/applied" || { echo "the API server refuses $overlay" >&2; exit 1; }
	! kubectl apply --dry-run=server -f "$scratch/all.yaml" 2>&1 | grep -i warning || { echo "$overlay: got a warning" >&2; exit 1; }
	echo "$overlay: $(grep -c . "$scratch/applied") objects accepted by $kubernetes"
done
