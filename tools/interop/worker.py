"""Kills LeRobot's worker at random moments while robots use it.

    worker.py BIN-FOLDER PYTHON-WITH-LEROBOT [--kills N] [--seed S]     # 100 kills: 20 minutes, Ctrl-C reports those so far

lean-server serves a small ACT with random weights in its worker, with the real LeRobot. Four robots (openpi's released
client) ask without a pause; each answer has to have the bytes of the answer to the same observation before the first
kill. A third of the kills is followed by another one while the worker loads. Ends with an error after a wrong chunk, a
connection or session that was lost, or a worker that does not serve again.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
from openpi_client import websocket_client_policy
from policies import ROOT, Trial, free_port, wait_for

CAMERAS = {"front": (96, 128), "wrist": (64, 96)}
JOINTS = ["shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos", "wrist_roll.pos", "gripper.pos"]
ROBOTS, OBSERVATIONS = 4, 8
READY, RESTARTS = "lean_server_program_ready", 'lean_server_program_events_total{event="restart"}'


class Robot(threading.Thread):
    """One client, which compares its answers."""

    def __init__(self, url, expected):
        super().__init__(daemon=True)
        self.policy = websocket_client_policy.WebsocketClientPolicy(url)
        self.expected, self.chunks, self.errors, self.wrong, self.ended = expected, 0, 0, [], False
        self.lost = None

    def run(self):
        i = 0
        while not self.ended:
            try:
                got = digest(self.policy.infer(observation(i % OBSERVATIONS)))
            except RuntimeError:  # the server's text in place of a chunk
                self.errors += 1
                time.sleep(0.05)
                continue
            except Exception as e:  # the connection
                self.lost = repr(e)
                return
            self.chunks += 1
            if got != self.expected[i % OBSERVATIONS]:
                self.wrong.append(i)
            i += 1


def observation(seed):
    noise = np.random.default_rng(seed)
    seen = {f"observation/{k}": noise.integers(0, 256, (*size, 3), np.uint8) for k, size in CAMERAS.items()}
    return seen | {"observation/state": noise.uniform(-40, 60, 6)}


def digest(answer):
    return hashlib.sha256(np.asarray(answer["actions"], np.float32).tobytes()).hexdigest()


def worker_of(server):
    """The worker's process: the child of lean-server, from any of its threads."""
    found = [int(c) for t in pathlib.Path(f"/proc/{server}/task").iterdir() for c in (t / "children").read_text().split()]
    return found[0] if found else None


def checkpoint(python, folder):
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tools/export/tests')!r}); import pathlib, checkpoints; checkpoints.act(pathlib.Path({str(folder)!r}))"
    subprocess.run([python, "-c", code], check=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries", type=lambda text: pathlib.Path(text).resolve())
    p.add_argument("python", type=os.path.abspath)
    p.add_argument("--kills", type=int, default=100)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell would ignore Ctrl-C
    chance, port = random.Random(args.seed), free_port()
    with Trial(args.binaries) as t:
        folder = pathlib.Path(t.folder.name)
        checkpoint(args.python, folder / "act")
        log = folder / "log"
        with log.open("w") as err:
            began = time.monotonic()
            server = t.serve(f"model:\n  runtime: lerobot\n  repo_or_path: act\n  python: {args.python}\n"
                             f"  inputs: {{fps: 30, state_names: {json.dumps(JOINTS)}, action_names: {json.dumps(JOINTS)}}}\n"
                             f'fronts: {{openpi: {{listen: "127.0.0.1:{port}"}}}}\nmax_sessions: {ROBOTS}\nsessions_per_host: {ROBOTS}\n',
                             stderr=err)
        loaded, url = time.monotonic() - began, f"ws://127.0.0.1:{port}"
        print(f"loaded in {loaded:.1f} s", flush=True)
        first = websocket_client_policy.WebsocketClientPolicy(url)
        expected = [digest(first.infer(observation(i))) for i in range(OBSERVATIONS)]
        assert len(set(expected)) == OBSERVATIONS
        first._ws.close()
        time.sleep(1)
        robots = [Robot(url, expected) for _ in range(ROBOTS)]
        for robot in robots:
            robot.start()
        opened, kills, again = log.read_text().count("session open"), 0, []
        try:
            while kills < args.kills:
                time.sleep(chance.uniform(0, 1.5))
                restarts = metric(t, RESTARTS)
                os.kill(worker_of(server.pid), signal.SIGKILL)
                killed = time.monotonic()
                kills += 1
                if chance.random() < 1 / 3:  # once more, while it loads
                    wait_for("a worker that loads", lambda: metric(t, READY) == 0 and worker_of(server.pid))
                    time.sleep(chance.uniform(0, loaded))
                    if metric(t, READY) == 0 and (pid := worker_of(server.pid)):
                        os.kill(pid, signal.SIGKILL)
                        killed = time.monotonic()
                        kills += 1
                wait_for("a worker that serves", lambda: metric(t, READY) == 1 and metric(t, RESTARTS) > restarts, 600)
                again.append(time.monotonic() - killed)
                before = [r.chunks for r in robots]
                wait_for("a chunk for every robot", lambda: all(r.chunks > n or r.lost for r, n in zip(robots, before)), 600)
                print(f"{kills} kills: serves again after {again[-1]:.1f} s", flush=True)
                if any(r.wrong or r.lost for r in robots):
                    raise SystemExit(f"worker: wrong chunks {[r.wrong for r in robots]}, lost {[r.lost for r in robots]}")
        except KeyboardInterrupt:
            pass
        for robot in robots:
            robot.ended = True
        for robot in robots:
            robot.join(60)
        result = {
            "kills": kills,
            "chunks": sum(r.chunks for r in robots),
            "errors": sum(r.errors for r in robots),
            "wrong_chunks": sum(len(r.wrong) for r in robots),
            "lost_connections": sum(r.lost is not None for r in robots),
            "sessions_opened_again": log.read_text().count("session open") - opened,
            "load_s": round(loaded, 1),
            "again_s_median": round(statistics.median(again), 1),
            "again_s_max": round(max(again), 1),
        }
    print(json.dumps(result))
    if result["sessions_opened_again"]:
        raise SystemExit("worker: failed")


def metric(trial, name):
    text = urllib.request.urlopen(f"http://127.0.0.1:{trial.health}/metrics", timeout=10).read().decode()
    return float(next(line for line in text.splitlines() if line.startswith(name)).split()[-1])


if __name__ == "__main__":
    main()
