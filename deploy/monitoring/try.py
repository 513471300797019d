"""The rules and the dashboards, judged by promtool and by a Prometheus that scrapes a real run.

    try.py PROGRAMS TOOLS [--seconds 40] [--faults] [--data FOLDER]

PROGRAMS is a folder with edge-rt and lean-server, TOOLS one with prometheus and promtool. A simulated arm runs the
demo's policy; every query of every panel is asked; then lean-server is killed, and ServerDown has to fire. With
--faults eight arms run at two servers, and after --seconds one loses its gripper, one some replies of its motors, one
is paused, one is killed, and a server hangs: the alerts have to fire before the queries are asked. --data keeps
Prometheus' data for another Prometheus, which a Grafana can show. Prints tables.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# Panels that have a series only where something is wrong, or with certificates.
MAY_BE_EMPTY = re.compile(r"> [02]|== [01]|ALERTS|certificate_end|dropped|rejected|opens_|_stale_total")
CALIBRATION = HERE.parents[1] / "testdata/demo/so101.json"  # of every simulated arm
BUS_FAULTS = {
    "arm-2": "{kind: mute, ids: [6], from: %ds}",
    "arm-3": "{kind: drop, probability: 0.05, from: %ds}",
}
MUST_FIRE = {  # with --faults, in the order of the table
    "ServerDown": "server-2", "RobotJointHeld": "arm-2", "RobotDown": "arm-5", "RobotWithoutSession": "arm-.*",
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    return json.load(urllib.request.urlopen(url, timeout=5))["data"]


def wait_for(what, seconds, done):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if done():
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"{what}: not within {seconds} s")


def panels(port):
    """Asks every query of the dashboards, prints the newest values, and returns the empty ones."""
    empty = []
    print("| dashboard | panel | query | series | first value |\n|---|---|---|---|---|")
    for path in sorted((HERE / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expr = target["expr"].replace('{instance=~"$instance"}', "").replace('instance=~"$instance",', "")
                expr = expr.replace("$__rate_interval", "1m")
                found = ask(port, "query", query=expr)["result"]
                if not found and not MAY_BE_EMPTY.search(expr):
                    empty.append(f"{path.stem}: {panel['title']}: {expr}")
                value = f"{float(found[0]['value'][1]):.4g}" if found else ""
                text = expr.replace("|", "\\|")
                print(f"| {path.stem} | {panel['title']} | `{text}` | {len(found)} | {value} |")
    return empty


class Fleet:
    """Servers, robots and a Prometheus that scrapes them, in a folder."""

    def __init__(self, args, folder, robots, servers):
        self.args, self.folder = args, folder
        self.running = []
        self.port = free_port()
        self.robots = {f"arm-{n + 1}": free_port() for n in range(robots)}  # name: port of its metrics
        self.servers = {f"server-{n + 1}": free_port() for n in range(servers)}
        self.endpoints = [f"tcp/127.0.0.1:{free_port()}" for _ in self.servers]
        self.environment = {**os.environ, "STATE_DIRECTORY": str(folder), "HF_LEROBOT_CALIBRATION": str(folder)}

    def start(self, program, *options):
        command = [str(o) for o in (program, *options)]
        with open(self.folder / f"{len(self.running)}-{program.name}.log", "wb") as log:
            self.running.append(subprocess.Popen(command, stdout=log, stderr=log, env=self.environment))
        return self.running[-1]

    def start_server(self, number, name):
        return self.start(self.args.programs / "lean-server", "--demo", "--listen", self.endpoints[number],
                          "--health-port", self.servers[name])

    def start_robot(self, number, name):
        """Starts a robot, which dials one server first and the others when that is away."""
        edge = self.args.programs / "edge-rt"
        first = number % len(self.endpoints)
        dial = [w for e in self.endpoints[first:] + self.endpoints[:first] for w in ("--connect", e)]
        bus = ["--bus", "sim", "--camera", "top=sim"]
        if name in BUS_FAULTS and self.args.faults:
            port = self.folder / name
            script = pathlib.Path(f"{port}.yaml")
            script.write_text(f"faults: [{BUS_FAULTS[name] % (self.args.seconds + 10)}]\n")
            self.start(edge, "sim-bus", "--robot", "so101", "--link", port, "--scene", f"{port}.scene",
                       "--faults", script)
            wait_for(f"{name}'s bus", 10, port.exists)
            bus = ["--bus", port, "--calibration", CALIBRATION, "--camera", f"top=sim:{port}.scene"]
        rate = ["--fps", 30, "--fps-mismatch", "allow"] if self.args.faults else []  # a rate that two cores can keep
        return self.start(edge, *bus, *dial, *rate, "--id", name, "--seed", number + 1, "--metrics", self.robots[name],
                          "--record", "off", "--max-offline", "10m", "--on-exit", "off")

    def start_prometheus(self):
        def targets(ports):
            return ", ".join(f'{{targets: ["127.0.0.1:{p}"], labels: {{instance: {n}}}}}' for n, p in ports.items())

        config = (HERE / "prometheus.yaml").read_text().replace("5s", "1s")
        config = config.replace('{targets: ["arm-1:9101", "arm-2:9101"]}', targets(self.robots))
        config = config.replace('{targets: ["server-1:9100"]}', targets(self.servers))
        path = self.folder / "prometheus.yaml"
        path.write_text(config.replace("[alerts.yaml]", f"[{HERE / 'alerts.yaml'}]"))
        self.start(self.args.tools / "prometheus", f"--config.file={path}",
                   f"--storage.tsdb.path={self.args.data or self.folder / 'data'}",
                   f"--web.listen-address=127.0.0.1:{self.port}")

    def firing(self, alert, instance):
        labels = f'alertname="{alert}",instance=~"{instance}",alertstate="firing"'
        return ask(self.port, "query", query=f"ALERTS{{{labels}}}")["result"]

    def show_logs(self):
        for log in sorted(self.folder.glob("*.log")):
            print(f"{log.name}: " + " / ".join(log.read_text(errors="replace").splitlines()[-2:]))

    def end(self):
        for process in reversed(self.running):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.running:
            process.wait(20)


def fail(fleet, servers, robots):
    """Plays the faults, and prints when which alert fired."""
    subprocess.run([fleet.args.programs / "edge-rt", "ctl", "pause", "--id", "arm-4"], env=fleet.environment,
                   check=True, stdout=subprocess.DEVNULL)
    robots["arm-5"].kill()
    servers["server-2"].send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    print("| alert | of | s after its cause |\n|---|---|---|")
    for alert, instance in MUST_FIRE.items():
        wait_for(f"{alert} of {instance} fires", 240, lambda: fleet.firing(alert, instance))
        names = ", ".join(sorted(a["metric"]["instance"] for a in fleet.firing(alert, instance)))
        print(f"| {alert} | {names} | {time.monotonic() - begun:.0f} |", flush=True)
    time.sleep(20)  # for the graphs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--data", type=pathlib.Path)
    args = parser.parse_args()
    for command in ("check rules alerts.yaml", "check config prometheus.yaml", "test rules alerts_test.yaml"):
        subprocess.run([args.tools.resolve() / "promtool", *command.split()], cwd=HERE, check=True)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(args, pathlib.Path(folder), *((8, 2) if args.faults else (1, 1)))
        try:
            servers = {name: fleet.start_server(n, name) for n, name in enumerate(fleet.servers)}
            for name, health in fleet.servers.items():  # a robot stays at the first server that answers
                wait_for(f"{name} is ready", 60,
                         lambda: urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz", timeout=5).status == 200)
            robots = {name: fleet.start_robot(n, name) for n, name in enumerate(fleet.robots)}
            fleet.start_prometheus()
            runs = "count(edge_rt_actions_total > 100)"
            wait_for("every arm runs", 120,
                     lambda: ask(fleet.port, "query", query=f"{runs} == {len(robots)}")["result"])
            time.sleep(args.seconds)
            if args.faults:
                fail(fleet, servers, robots)
            if empty := panels(fleet.port):
                raise SystemExit("no series for " + "; ".join(empty))
            if not args.faults:
                servers["server-1"].kill()
                begun = time.monotonic()
                wait_for("ServerDown fires", 60, lambda: fleet.firing("ServerDown", "server-1"))
                print(f"\nServerDown fires {time.monotonic() - begun:.0f} s after kill -9 of lean-server.")
        except SystemExit:
            fleet.show_logs()
            raise
        finally:
            fleet.end()


if __name__ == "__main__":
    main()
