"""Plays lab and fleet/east on a real Kubernetes with fake nodes, and judges every change of a pod. For try.sh.

    play.py PROGRAMS SCRATCH URL

PROGRAMS is a folder with kubectl, kube-controller-manager, kube-scheduler and kwok, SCRATCH one with the kubeconfig of
the API server at URL. kwok plays ten nodes with one GPU each: a container runs half a second after its pod has a node,
is ready two seconds later, and ends a second after its deletion. No container runs, so no probe and no image is tried.
The custom metrics of the autoscaler come from this program, which counts robots and servers.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from cluster import LIMIT, STAGES, Cluster, Metrics, View, absent, fewest, gpus, is_ready, node, steps, volume

HERE = pathlib.Path(__file__).resolve().parent
REGION = "edge-rt-east"
NODES = 10
# base/server.yaml has 900 and 300 s.
WINDOW, PERIOD = 10, 5


class Play:
    def __init__(self, cluster):
        self.cluster, self.begun, self.rows, self.wrong = cluster, time.monotonic(), [], 0
        self.tree = cluster.scratch / "tree"
        shutil.copytree(HERE, self.tree)
        self.edit("base/server.yaml", "stabilizationWindowSeconds: 900", f"stabilizationWindowSeconds: {WINDOW}")
        self.edit("base/server.yaml", "periodSeconds: 300", f"periodSeconds: {PERIOD}")

    def edit(self, name, before, after):
        path = self.tree / name
        text = path.read_text()
        if before not in text:
            raise SystemExit(f"{name}: got no '{before}', which the play changes: adapt play.py")
        path.write_text(text.replace(before, after))

    def check(self, part, promise, seen, holds):
        self.wrong += not holds
        self.rows.append((part, promise, seen, "" if holds else " **wrong**"))
        print(f"{time.monotonic() - self.begun:4.0f} s  {'ok   ' if holds else 'WRONG'}  {part}: {promise}: {seen}", flush=True)

    def wait(self, until, seconds, done):
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise SystemExit(f"{until}: not within {seconds} s")
            time.sleep(0.1)

    def apply(self, overlay):
        self.cluster.kubectl("apply", "-k", self.tree / overlay)

    def hpa(self):
        return self.cluster.items(REGION, "horizontalpodautoscalers", "apis/autoscaling/v2")[0]

    def condition(self, kind):
        return next((c for c in self.hpa().get("status", {}).get("conditions", []) if c["type"] == kind), {"status": "", "reason": ""})

    def secrets(self, namespace):
        """Steps 3 and 4 of the README."""
        for name, *hosts in (("server",), ("router", "router-0.routers", "router-1.routers", "router-2.routers", "127.0.0.1")):
            subprocess.run(["sh", self.cluster.scratch / "ca.sh", name, *hosts], check=True, capture_output=True)
        files = self.cluster.scratch / "certificates"
        for secret, name in (("router-tls", "router"), ("lean-server-tls", "server")):
            self.cluster.kubectl("-n", namespace, "create", "secret", "generic", secret, f"--from-file=tls.crt={files / name}.pem",
                                 f"--from-file=tls.key={files / name}.key", f"--from-file=ca.crt={files / 'ca.pem'}")

    @contextlib.contextmanager
    def cordon(self, nodes):
        """Leaves new pods no place on these nodes, until the block ends."""
        self.cluster.kubectl("cordon", *nodes)
        yield
        self.cluster.kubectl("uncordon", *nodes)

    def free(self, view):
        return sorted({f"node-{n}" for n in range(NODES)} - set(view.nodes("lean-server")))

    def lab(self):
        view = View(self.cluster, "edge-rt")
        self.apply("lab")
        self.wait("the lab's router is ready", 60, lambda: view.ready("router") == 1 and len(view.of("lean-server")) == 1)

        def unbound():
            conditions = [c for p in view.of("lean-server") for c in p["status"].get("conditions", [])]
            return any("unbound immediate PersistentVolumeClaims" in c.get("message", "") for c in conditions)

        self.wait("the server waits for its claim", 30, unbound)
        self.check("lab", "without a volume the server waits for its claim", f"{view.ready()} ready, Pending", view.ready() == 0)
        self.cluster.create(volume("edge-rt"))
        self.wait("the lab's server is ready", 60, lambda: view.calm(1, 1))
        claim = self.cluster.items("edge-rt", "persistentvolumeclaims")[0]["status"]["phase"]
        self.check("lab", "one server, one router, the claim is bound", f"1, 1, {claim}", claim == "Bound")
        missing = absent(self.cluster, "edge-rt")
        self.check("lab", "before step 4 of the README two Secrets are absent, and nothing else", ", ".join(missing),
                   missing == ["secrets/lean-server-tls", "secrets/router-tls"])
        self.secrets("edge-rt")
        missing = absent(self.cluster, "edge-rt")
        self.check("lab", "after it nothing is", ", ".join(missing) or "nothing", not missing)
        before, begin = view.names("lean-server"), time.monotonic()
        image = "lean-server=registry.example/lean-server:next"
        self.cluster.kubectl("-n", "edge-rt", "set", "image", "deployment/lean-server", image)
        self.wait("the lab has the new image", 60, lambda: view.calm(1, 1) and not before & view.names("lean-server"))
        most = max(m.live["lean-server"] for m in view.since(begin))
        self.check("lab", "an update needs no second GPU: the old server ends first", f"at most {most} server", most == 1)
        self.cluster.kubectl("delete", "-k", self.tree / "lab", "--wait=false")

    def up(self, view):
        self.apply("fleet/east")
        self.cluster.create(volume(REGION))
        self.secrets(REGION)
        self.wait("the region is up", 90, lambda: view.calm(5))
        servers = view.of("lean-server")
        nodes = len(set(view.nodes("lean-server")))
        self.check("region", "five servers, a GPU each", f"{len(servers)} on {nodes} nodes", nodes == 5 and all(gpus(p) == 1 for p in servers))
        self.check("region", "three routers on three nodes", f"{view.ready('router')} on {len(set(view.nodes('router')))}",
                   len(set(view.nodes("router"))) == 3)

        def available():
            return self.cluster.items(REGION, "deployments", "apis/apps/v1")[0]["status"].get("availableReplicas")

        self.wait("the Deployment has five available servers", 30, lambda: available() == 5)
        missing = absent(self.cluster, REGION)
        self.check("region", "nothing that is referred to is absent", ", ".join(missing) or "nothing", not missing)
        slices = self.cluster.items(REGION, "endpointslices", "apis/discovery.k8s.io/v1")
        ends = [(s["metadata"]["labels"]["kubernetes.io/service-name"], e) for s in slices for e in s["endpoints"]]
        hosts = sorted(f"{e.get('hostname')}.{name}" for name, e in ends if name == "routers")
        text = next(c for c in self.cluster.items(REGION, "configmaps") if "server.yaml" in c["data"])["data"]["server.yaml"]
        dialled = sorted(re.findall(r'"tls/([\w.-]+):7447"', text))
        self.check("region", "each router that the manifest dials has a name", ", ".join(hosts), hosts == dialled and len(hosts) == 3)

    def evict(self, view, app, total):
        """Evicts two ready pods; the second as often as it is refused. Returns the answers and the fewest ready pods."""
        pods = [p["metadata"] for p in view.of(app) if is_ready(p)][-2:]
        first, second = (p["name"] for p in pods)
        begin, codes = time.monotonic(), [self.cluster.evict(REGION, first)]
        while codes[-1] != 201 or len(codes) < 2:
            codes.append(self.cluster.evict(REGION, second))
            if time.monotonic() - begin > 60:
                raise SystemExit(f"eviction of {second}: got {codes[-1]} for a minute")
            time.sleep(0.1)
        old = {p["uid"] for p in pods}
        self.wait(f"{total} of {app} are ready", 60, lambda: view.ready(app) == len(view.of(app)) == total and not old & view.uids(app))
        return codes, fewest(view.since(begin), app)

    def disruptions(self, view):
        for app, total in (("lean-server", 5), ("router", 3)):
            codes, least = self.evict(view, app, total)
            seen = f"{codes[0]}, {codes[1]} for {codes.count(429)} tries, {codes[-1]}; {least} ready"
            holds = codes[:2] == [201, 429] and least == total - 1
            self.check("budget", f"{app}: a second eviction waits for the replacement", seen, holds)
        nodes = sorted(set(view.nodes("router")[:2] + view.nodes("lean-server")[:2]))
        begin = time.monotonic()
        codes = [d.wait(120) for d in [self.cluster.drain(n) for n in nodes]]
        self.wait("the region is whole again", 60, lambda: view.calm(5))
        moments, left = view.since(begin), set(nodes) & set(view.nodes("router") + view.nodes("lean-server"))
        least = fewest(moments), fewest(moments, "router")
        self.check("budget", f"{len(nodes)} nodes drained at once: one pod of each is away at a time",
                   f"{least[0]} of 5 servers, {least[1]} of 3 routers ready; {time.monotonic() - begin:.0f} s",
                   codes == [0] * len(nodes) and least == (4, 2) and not left)
        self.cluster.kubectl("uncordon", *nodes)

    def grow(self, view, metrics):
        self.wait("the autoscaler reads its metrics", 60, lambda: self.condition("ScalingActive")["status"] == "True")
        begin = time.monotonic()
        time.sleep(5)
        seen = steps(view.since(begin))
        self.check("autoscaler", "150 robots, three of four places taken: the number stays", f"{seen}", seen == [5])
        begin, metrics.robots = time.monotonic(), 300
        self.wait("nine servers are ready", 90, lambda: view.calm(9))
        self.wait("the autoscaler is at its limit", 30, lambda: self.condition("ScalingLimited")["reason"] == "TooManyReplicas")
        seen = steps(view.since(begin))
        self.check("autoscaler", "300 robots, since the other region is away: nine servers", f"{seen}, then TooManyReplicas",
                   seen[:2] == [5, 7] and seen[-1] == 9 and seen == sorted(seen))

    def update(self, view):
        """The operator's update: another manifest, and another configuration of the routers, applied again."""
        self.edit("base/manifest.yaml", "clients: [arm-a, arm-b]", "clients: [arm-a, arm-b, arm-c]")
        self.edit("base/router-0.json5", "// Of routers.sh.", "// Of routers.sh, again.")
        old, begin = view.uids("lean-server", "router"), time.monotonic()
        with self.cordon(self.free(view)):
            self.apply("fleet/east")
            self.wait("a new server waits for a GPU", 30, lambda: len(view.of("lean-server")) == 10)
            time.sleep(5)
            moments = view.since(begin)
            self.check("update", "nine servers on nine GPUs: it waits, and ends no server", f"{fewest(moments)} ready", fewest(moments) == 9)
        self.wait("the update is complete", 120, lambda: view.calm(9) and not old & view.uids("lean-server", "router"))
        moments = view.since(begin)
        most = max(m.live["lean-server"] for m in moments)
        self.check("update", "with a tenth GPU: no old server ends before a new one is ready",
                   f"{fewest(moments)} of 9 ready, at most {most} servers; {time.monotonic() - begin:.0f} s",
                   fewest(moments) == 9 and most == 10)
        self.check("update", "routers one after the other", f"{fewest(moments, 'router')} of 3 ready", fewest(moments, "router") == 2)
        self.check("update", "applying again leaves the autoscaler's number", f"{steps(moments)}", steps(moments) == [9])

    def shrink(self, view, metrics):
        begin, metrics.away = time.monotonic(), True
        self.wait("the autoscaler misses its metrics", 30, lambda: self.condition("ScalingActive")["status"] == "False")
        time.sleep(WINDOW + PERIOD)
        seen = steps(view.since(begin))
        self.check("autoscaler", "without metrics the number stays", f"{seen}, {self.condition('ScalingActive')['reason']}", seen == [9])
        metrics.away = False
        self.wait("the autoscaler has its metrics again", 30, lambda: self.condition("ScalingActive")["status"] == "True")
        time.sleep(2)
        begin, metrics.robots = time.monotonic(), 150
        self.wait("five servers remain", 120, lambda: view.calm(5))
        moments = view.since(begin)
        at = [b.at - begin for a, b in zip(moments, moments[1:]) if a.asked != b.asked]
        gap = min(b - a for a, b in zip(at, at[1:]))
        self.check("autoscaler", f"150 robots again: after the window ({WINDOW} s here) one server leaves in {PERIOD} s",
                   f"{steps(moments)}; first after {at[0]:.0f} s, then every {gap:.0f} s or more",
                   steps(moments) == [9, 8, 7, 6, 5] and at[0] >= WINDOW - 2 and gap >= PERIOD - 0.5)

    def each(self, view, metrics):
        for name, field, value, calm, want in (("short runways, 58 of 1000", "runway", 58, 10, 6), ("a wait of 23 ms", "wait", 23, 5, 7)):
            begin = time.monotonic()
            setattr(metrics, field, value)
            self.wait(f"{want} servers", 30, lambda: view.asked != want - 1)
            setattr(metrics, field, calm)
            metrics.robots = 30 * want
            self.wait(f"{want} servers are ready", 30, lambda: view.calm(want))
            seen = steps(view.since(begin))
            self.check("autoscaler", f"{name}: another server", f"{seen}", seen == [want - 1, want])

    def lack(self, view, metrics):
        with self.cordon(self.free(view)[:2]):
            metrics.robots = 400
            self.wait("eight servers are ready", 60, lambda: view.ready() == 8 and len(view.of("lean-server")) == 9)
            begin, names = time.monotonic(), view.names("lean-server")
            time.sleep(10)
            moments, new = view.since(begin), view.names("lean-server") - names
            seen = f"{fewest(moments)} ready, 1 Pending, {steps(moments)} asked, {len(new)} new pods in 10 s"
            self.check("autoscaler", "eight GPUs for nine servers: eight serve, one waits", seen,
                       fewest(moments) == 8 and steps(moments) == [9] and names == view.names("lean-server"))
        metrics.robots = 9 * 30
        self.wait("nine servers are ready", 60, lambda: view.calm(9))

    def never_ready(self, view):
        annotation = {"spec": {"template": {"metadata": {"annotations": {"play/never-ready": "true"}}}}}
        old, begin = view.names("lean-server"), time.monotonic()
        self.cluster.kubectl("-n", REGION, "patch", "deployment", "lean-server", "-p", json.dumps(annotation))
        self.wait("a new server runs", 30, lambda: any(
            p["status"]["phase"] == "Running" and p["metadata"]["name"] not in old for p in view.of("lean-server")))
        time.sleep(5)
        self.check("update", "to servers that never get ready: all old ones stay", f"{fewest(view.since(begin))} of 9 ready",
                   fewest(view.since(begin)) == 9 and old <= view.names("lean-server"))
        first, second = sorted(old)[:2]
        broken = (view.names("lean-server") - old).pop()
        codes = [self.cluster.evict(REGION, name) for name in (first, second, broken)]
        self.check("budget", "while it is used up, a server that is not ready can still be evicted", f"{codes}", codes == [201, 429, 201])
        self.cluster.kubectl("-n", REGION, "rollout", "undo", "deployment/lean-server")
        self.wait("nine servers are ready", 90, lambda: view.calm(9))

    def bites(self, view):
        """The judge's own test: other manifests, at which it has to see fewer servers."""
        shared = max(m.shared for m in view.moments)
        self.check("region", "at no time did two pods share a GPU", f"at most {shared}", shared == 1)
        other = {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "50%"}},
                          "template": {"metadata": {"annotations": {"play/again": "true"}}}}}
        before, begin = view.names("lean-server"), time.monotonic()
        self.cluster.kubectl("-n", REGION, "patch", "deployment", "lean-server", "-p", json.dumps(other))
        self.wait("the other update is complete", 90, lambda: view.calm(9) and not before & view.names("lean-server"))
        least = fewest(view.since(begin))
        self.check("judge", "sees an update with maxUnavailable 50 %", f"{least} of 9 ready", least == 5)
        self.cluster.kubectl("-n", REGION, "delete", "pdb", "lean-server")
        codes, least = self.evict(view, "lean-server", 9)
        self.check("judge", "sees that there is no budget", f"{codes}; {least} ready", codes == [201, 201] and least == 7)

    def run(self):
        shutil.copy(HERE.parent.parent / "examples/router/ca.sh", self.cluster.scratch)
        stages = self.cluster.scratch / "stages.yaml"
        stages.write_text(STAGES)
        self.cluster.start("kube-controller-manager", "--leader-elect=false", "--secure-port=0", "--kube-api-qps=100", "--kube-api-burst=200",
                           f"--service-account-private-key-file={self.cluster.scratch / 'key'}", "--horizontal-pod-autoscaler-sync-period=1s",
                           "--node-monitor-grace-period=600s")  # else nodes of a busy machine are unready
        self.cluster.start("kube-scheduler", "--leader-elect=false", "--secure-port=0")
        self.cluster.start("kwok", "--manage-all-nodes=true", "--config", stages)
        self.cluster.create(*map(node, range(NODES)))
        self.lab()
        view = View(self.cluster, REGION)
        metrics = Metrics(view, self.cluster.scratch)
        self.cluster.create(*metrics.objects())
        self.up(view)
        self.disruptions(view)
        self.grow(view, metrics)
        self.update(view)
        self.shrink(view, metrics)
        self.each(view, metrics)
        self.lack(view, metrics)
        self.never_ready(view)
        self.bites(view)

    def table(self):
        print("\n| part | promise | seen |\n|---|---|---|")
        for part, promise, seen, wrong in self.rows:
            print(f"| {part} | {promise} | {seen}{wrong} |")
        print(f"\n{len(self.rows) - self.wrong} of {len(self.rows)} promises kept, in {time.monotonic() - self.begun:.0f} s")


def stop(number, frame):
    raise SystemExit(f"not within {LIMIT} s" if number == signal.SIGALRM else 128 + number)


def main():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, stop)
    signal.alarm(LIMIT)
    os.environ["HOME"] = sys.argv[2]  # kubectl and kwok keep files there
    cluster = Cluster(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
    play = Play(cluster)
    try:
        play.run()
        play.table()
    except SystemExit as reason:
        if isinstance(reason.code, str):
            play.table()
            print(cluster.kubectl("get", "pods,hpa,pvc,nodes", "--all-namespaces"), file=sys.stderr)
            for log in sorted(cluster.scratch.glob("*.log")):
                print(log.name, *log.read_text(errors="replace").splitlines()[-3:], sep="\n    ", file=sys.stderr)
        raise
    finally:
        cluster.end()
    sys.exit(1 if play.wrong else 0)


if __name__ == "__main__":
    main()
