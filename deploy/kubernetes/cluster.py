"""A Kubernetes without machines for play.py: its API, its pods as they change, and the metrics of its autoscaler."""

import collections
import contextlib
import http.server
import json
import re
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

PLACES = 40  # robots for each server, the figure of fleet/region
LIMIT = 600  # seconds for the whole play

STAGES = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: start}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: .status.podIP, operator: DoesNotExist}
  delay: {durationMilliseconds: 500}
  next:
    statusTemplate: |
      phase: Running
      startTime: {{ Now | Quote }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
      conditions:
      - {type: Initialized, status: "True", lastTransitionTime: {{ Now | Quote }}}
      - {type: ContainersReady, status: "False", lastTransitionTime: {{ Now | Quote }}}
      - {type: Ready, status: "False", lastTransitionTime: {{ Now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
      - {key: '.metadata.annotations["play/never-ready"]', operator: DoesNotExist}
      - {key: .status.phase, operator: In, values: [Running]}
      - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: In, values: ["False"]}
  delay: {durationMilliseconds: 2000}
  next:
    statusTemplate: |
      conditions:
      - {type: ContainersReady, status: "True", lastTransitionTime: {{ Now | Quote }}}
      - {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: end}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
      - {key: .metadata.deletionTimestamp, operator: Exists}
  delay: {durationMilliseconds: 1000}
  next: {delete: true}
"""


def node(n):
    size = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "1"}
    return {"apiVersion": "v1", "kind": "Node", "status": {"allocatable": size, "capacity": size},
            "metadata": {"name": f"node-{n}", "labels": {"kubernetes.io/hostname": f"node-{n}", "kubernetes.io/os": "linux"}}}


def volume(namespace):
    """The volume of the bundle, which step 5 of the README leaves to the operator."""
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"bundle-{namespace}"},
            "spec": {"accessModes": ["ReadOnlyMany"], "capacity": {"storage": "10Gi"}, "nfs": {"server": "nfs.example", "path": "/bundle"},
                     "claimRef": {"namespace": namespace, "name": "bundle"}}}


class Cluster:
    def __init__(self, programs, scratch, url):
        self.programs, self.scratch, self.url = programs, scratch, url
        self.running = []

    def start(self, name, *arguments):
        with open(self.scratch / f"{name}.log", "wb") as log:
            command = [self.programs / name, "--kubeconfig", self.scratch / "kubeconfig", *arguments]
            self.running.append(subprocess.Popen(command, stdout=log, stderr=log))

    def end(self):
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kubectl(self, *arguments, text=None):
        command = [self.programs / "kubectl", "--kubeconfig", self.scratch / "kubeconfig", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise SystemExit(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def drain(self, node):
        command = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s"]
        return subprocess.Popen([self.programs / "kubectl", "--kubeconfig", self.scratch / "kubeconfig", *command],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def create(self, *objects):
        self.kubectl("apply", "-f", "-", text="\n---\n".join(map(json.dumps, objects)))

    def open(self, path, body=None, seconds=30):
        headers = {"Authorization": "Bearer try", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, headers=headers, data=body and json.dumps(body).encode())
        return urllib.request.urlopen(request, timeout=seconds, context=ssl._create_unverified_context())

    def get(self, path):
        with self.open(path) as reply:
            return json.load(reply)

    def items(self, namespace, kind, api="api/v1"):
        return self.get(f"/{api}/namespaces/{namespace}/{kind}")["items"]

    def evict(self, namespace, name):
        """Returns the status with which the API server answers an eviction: 201, or 429 where a budget forbids it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        try:
            with self.open(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body) as reply:
                return reply.status
        except urllib.error.HTTPError as refused:
            return refused.code


def is_ready(pod):
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def gpus(pod):
    return sum(int(c["resources"].get("requests", {}).get("nvidia.com/gpu", 0)) for c in pod["spec"]["containers"])


# A Moment has the figures after one change of a pod or of the Deployment: the ready pods and those not yet deleted of
# each app, the most pods that share a GPU, and the servers that the Deployment asks for.
Moment = collections.namedtuple("Moment", "at ready live shared asked")


class View:
    """Follows the pods and the Deployment of a namespace. A pod that ends is not ready: it drains."""

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace = cluster, namespace
        self.lock, self.pods, self.asked, self.moments = threading.Lock(), {}, 0, []
        for path, take in ((f"/api/v1/namespaces/{namespace}/pods", self.take_pod),
                           (f"/apis/apps/v1/namespaces/{namespace}/deployments", self.take_deployment)):
            threading.Thread(target=self.follow, args=(path, take), daemon=True).start()

    def follow(self, path, take):
        path += f"?watch=true&timeoutSeconds={LIMIT}"
        with contextlib.suppress(OSError, ValueError), self.cluster.open(path, seconds=LIMIT) as lines:
            for line in lines:
                event = json.loads(line)
                with self.lock:
                    take(event["type"], event["object"])
                    self.note()

    def take_pod(self, change, pod):
        self.pods[pod["metadata"]["name"]] = pod
        if change == "DELETED":
            del self.pods[pod["metadata"]["name"]]

    def take_deployment(self, change, deployment):
        self.asked = 0 if change == "DELETED" else deployment["spec"]["replicas"]

    def note(self):
        ready, live, on = collections.Counter(), collections.Counter(), collections.Counter()
        for pod in self.pods.values():
            app = pod["metadata"]["labels"]["app"]
            ready[app] += is_ready(pod)
            live[app] += "deletionTimestamp" not in pod["metadata"]
            on[pod["spec"].get("nodeName")] += gpus(pod) if "nodeName" in pod["spec"] else 0
        self.moments.append(Moment(time.monotonic(), ready, live, max(on.values(), default=0), self.asked))

    def of(self, app):
        with self.lock:
            return sorted((p for p in self.pods.values() if p["metadata"]["labels"]["app"] == app), key=lambda p: p["metadata"]["name"])

    def names(self, app):
        return {p["metadata"]["name"] for p in self.of(app)}

    def uids(self, *apps):
        return {p["metadata"]["uid"] for app in apps for p in self.of(app)}

    def nodes(self, app):
        return [p["spec"].get("nodeName") for p in self.of(app)]

    def ready(self, app="lean-server"):
        return sum(map(is_ready, self.of(app)))

    def calm(self, servers, routers=3):
        """True while exactly these numbers of pods exist and all of them are ready."""
        return all(self.ready(a) == len(self.of(a)) == n for a, n in (("lean-server", servers), ("router", routers)))

    def since(self, begin):
        """The moments since begin, and before them the last earlier moment, which was in effect at begin."""
        with self.lock:
            first = max((i for i, m in enumerate(self.moments) if m.at <= begin), default=0)
            return self.moments[first:]


def fewest(moments, app="lean-server"):
    return min(m.ready[app] for m in moments)


def steps(moments):
    """The numbers of servers that the Deployment asked for, in order, without repetitions."""
    asked = [m.asked for m in moments]
    return asked[:1] + [b for a, b in zip(asked, asked[1:]) if a != b]


class Metrics(http.server.ThreadingHTTPServer):
    """The API of custom metrics for the ready servers of a View: robots fill their places evenly."""

    daemon_threads = True

    def __init__(self, view, scratch):
        super().__init__(("127.0.0.1", 0), Answers)
        self.view, self.robots, self.wait, self.runway, self.away = view, 150, 5, 10, False
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", scratch / "metrics.key",
                        "-out", scratch / "metrics.pem"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(scratch / "metrics.pem", scratch / "metrics.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def objects(self):
        """The Service and the APIService by which the API server finds this one."""
        port = self.server_address[1]
        yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": "default"},
               "spec": {"type": "ExternalName", "externalName": "localhost"}}
        yield {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta2.custom.metrics.k8s.io"},
               "spec": {"group": "custom.metrics.k8s.io", "version": "v1beta2", "groupPriorityMinimum": 100, "versionPriority": 100,
                        "insecureSkipTLSVerify": True, "service": {"name": "metrics", "namespace": "default", "port": port}}}

    def milli(self):
        servers = max(1, self.view.ready())
        return {"lean_server_queue_wait_p99_seconds": self.wait, "lean_server_short_runway_ratio": self.runway,
                "lean_server_places_taken_ratio": min(1000, 1000 * self.robots // (PLACES * servers))}

    def answer(self, path):
        parts = urllib.parse.unquote(urllib.parse.urlparse(path).path).strip("/").split("/")
        version = {"apiVersion": "custom.metrics.k8s.io/v1beta2"}
        if parts == ["apis", "custom.metrics.k8s.io", "v1beta2"]:
            resources = [{"name": f"pods/{m}", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]} for m in self.milli()]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "custom.metrics.k8s.io/v1beta2", "resources": resources}
        if self.away or parts[3:-1] != ["namespaces", self.view.namespace, "pods", "*"] or parts[-1] not in self.milli():
            return None
        now, value = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), f"{self.milli()[parts[-1]]}m"
        pods = [p["metadata"]["name"] for p in self.view.of("lean-server") if is_ready(p)]
        described = [{"kind": "Pod", "apiVersion": "/v1", "namespace": self.view.namespace, "name": n} for n in pods]
        return {"kind": "MetricValueList", **version, "metadata": {},
                "items": [{"describedObject": d, "metric": {"name": parts[-1]}, "timestamp": now, "value": value} for d in described]}


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.server.answer(self.path)
        body = json.dumps(found or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def absent(cluster, namespace):
    """Returns the objects, keys and ports that pods, Services, policies and budgets name and that do not exist."""
    have = {kind: {o["metadata"]["name"]: o for o in cluster.items(namespace, kind)}
            for kind in ("configmaps", "secrets", "persistentvolumeclaims", "serviceaccounts", "pods", "services")}
    texts = "".join(text for c in have["configmaps"].values() for text in c["data"].values())
    files = set(re.findall(r"/etc/edge-rt/tls/([\w.]+)", texts))
    missing = set()

    def want(kind, name, keys=()):
        found = have[kind].get(name)
        missing.update([f"{kind}/{name}"] if found is None else {f"{kind}/{name}: {k}" for k in keys if k not in found["data"]})

    for pod in have["pods"].values():
        want("serviceaccounts", pod["spec"]["serviceAccountName"])
        app = pod["metadata"]["labels"]["app"]
        for v in pod["spec"]["volumes"]:
            if "configMap" in v:
                want("configmaps", v["configMap"]["name"], ["server.yaml" if app == "lean-server" else pod["metadata"]["name"] + ".json5"])
            if "secret" in v:
                want("secrets", v["secret"]["secretName"], files)
            if "persistentVolumeClaim" in v:
                want("persistentvolumeclaims", v["persistentVolumeClaim"]["claimName"])

    def chosen(labels):
        return [p for p in have["pods"].values() if labels.items() <= p["metadata"]["labels"].items()]

    def named(what, labels, ports):
        pods = chosen(labels)
        missing.update([] if pods else [f"{what}: a pod"])
        offered = [{p["name"] for c in pod["spec"]["containers"] for p in c.get("ports", [])} for pod in pods]
        missing.update(f"{what}: port {p}" for p in ports if isinstance(p, str) and not all(p in o for o in offered))

    for name, service in have["services"].items():
        named(f"services/{name}", service["spec"]["selector"], [p["targetPort"] for p in service["spec"]["ports"]])
    for policy in cluster.items(namespace, "networkpolicies", "apis/networking.k8s.io/v1"):
        what, spec = f"networkpolicies/{policy['metadata']['name']}", policy["spec"]
        named(what, spec["podSelector"]["matchLabels"], [p["port"] for rule in spec["ingress"] for p in rule["ports"]])
        for peer in (peer for rule in spec["egress"] for peer in rule.get("to", [])):
            named(what, peer["podSelector"]["matchLabels"], [])
    for budget in cluster.items(namespace, "poddisruptionbudgets", "apis/policy/v1"):
        named(f"poddisruptionbudgets/{budget['metadata']['name']}", budget["spec"]["selector"]["matchLabels"], [])
    return sorted(missing)
