"""The rules and the dashboards, judged by promtool and by a Prometheus that scrapes a real run.

    try.py PROGRAMS TOOLS [--seconds 40]

PROGRAMS is a folder with edge-rt and lean-server, TOOLS one with prometheus and promtool. A simulated arm runs the demo's
policy; every query of every panel is asked; then lean-server is killed, and ServerDown has to fire. Prints a table.
"""

import argparse
import json
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# Panels that have a series only where something is wrong, or with certificates.
MAY_BE_EMPTY = re.compile(r"> [02]|== 1|ALERTS|certificate_end|dropped|rejected|opens_|_stale_total")


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
                expr = target["expr"].replace('{instance=~"$instance"}', "")
                found = ask(port, "query", query=expr)["result"]
                if not found and not MAY_BE_EMPTY.search(expr):
                    empty.append(f"{path.stem}: {panel['title']}: {expr}")
                value = f"{float(found[0]['value'][1]):.4g}" if found else ""
                text = expr.replace("|", "\\|")
                print(f"| {path.stem} | {panel['title']} | `{text}` | {len(found)} | {value} |")
    return empty


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=40)
    args = parser.parse_args()
    for command in (["check", "rules", "alerts.yaml"], ["check", "config", "prometheus.yaml"], ["test", "rules", "alerts_test.yaml"]):
        subprocess.run([args.tools.resolve() / "promtool", *command], cwd=HERE, check=True)
    zenoh, health, metrics, port = (free_port() for _ in range(4))
    running = []

    def start(*command):
        running.append(subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return running[-1]

    with tempfile.TemporaryDirectory() as folder:
        config = (HERE / "prometheus.yaml").read_text().replace("5s", "1s")
        config = config.replace('"arm-1:9101", "arm-2:9101"', f'"127.0.0.1:{metrics}"').replace("server-1:9100", f"127.0.0.1:{health}")
        path = pathlib.Path(folder, "prometheus.yaml")
        path.write_text(config.replace("[alerts.yaml]", f"[{HERE / 'alerts.yaml'}]"))
        try:
            server = start(args.programs / "lean-server", "--demo", "--listen", f"tcp/127.0.0.1:{zenoh}", "--health-port", health)
            start(args.programs / "edge-rt", "--bus", "sim", "--camera", "top=sim", "--connect", f"tcp/127.0.0.1:{zenoh}",
                  "--metrics", metrics, "--record", "off")
            start(args.tools / "prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}")
            wait_for("the arm runs", 60, lambda: ask(port, "query", query="edge_rt_actions_total > 100")["result"])
            time.sleep(args.seconds)
            if empty := panels(port):
                raise SystemExit("no series for " + "; ".join(empty))
            server.kill()
            begun = time.monotonic()
            firing = 'ALERTS{alertname="ServerDown",alertstate="firing"}'
            wait_for("ServerDown fires", 60, lambda: ask(port, "query", query=firing)["result"])
            print(f"\nServerDown fires {time.monotonic() - begun:.0f} s after kill -9 of lean-server.")
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(20)


if __name__ == "__main__":
    main()
