"""Policy servers and clients of other projects against lean-server and a simulated arm.

    policies.py BIN-FOLDER [--seconds N] [--faults SCENARIO] [--lerobot PYTHON]

The demo policy computes in lean-server, in openpi's released server, and in a server of GR00T's documented protocol;
the arm has to reach targets through each, under the faults of a scenario of bench/faults/scripts on its link, also
after the policy's program was killed and started again. Then openpi's released client asks lean-server's own front.
With a Python that has LeRobot and grpcio the policy also computes in lean-server's worker and in LeRobot's released
policy_server, and LeRobot's released robot_client asks that server and lean-server's front. Ends with an error if one
of them fails.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "testdata/demo/bundle"
SERVERS = ROOT / "server/remote/upstream/testdata/servers.py"
CLIENT = ROOT / "server/front/openpi/testdata/client.py"
LEROBOT = ROOT / "tools/interop/lerobot_programs.py"
SCENARIOS = ROOT / "bench/faults/scripts"
JOINTS = "shoulder_pan.pos, shoulder_lift.pos, elbow_flex.pos, wrist_flex.pos, wrist_roll.pos, gripper.pos"
CAMERA = "    cameras: [{name: top, key: KEY, height: 120, width: 160}]\n"
DESCRIBED = f"  inputs:\n    fps: 60\n    action_names: [{JOINTS}]\n"
UNITS = "    chunk_size: 50\n    action_units: [degrees, degrees, degrees, degrees, degrees, range_0_100]\n"
MODELS = {  # the manifest's model; URL is HOST:PORT of the policy's program, FOLDER a checkpoint
    "onnx": f"  repo_or_path: {BUNDLE}\n  id: demo/around-the-post\n",
    "openpi": '  url: "ws://URL"\n' + DESCRIBED + UNITS + CAMERA.replace("KEY", "observation/image"),
    "gr00t": '  url: "tcp://URL"\n' + DESCRIBED + UNITS + CAMERA.replace("KEY", "video.top")
    + """    state_keys: [{key: state.single_arm, size: 5}, {key: state.gripper, size: 1}]
    action_keys: [{key: action.single_arm, size: 5}, {key: action.gripper, size: 1}]
""",
    "lerobot": "  repo_or_path: FOLDER\n  python: PYTHON\n" + DESCRIBED + f"    state_names: [{JOINTS}]\n",
    "lerobot-async": '  url: "URL"\n  policy_type: post\n  repo_or_path: FOLDER\n' + DESCRIBED + UNITS
    + CAMERA.replace("KEY", "top"),
}
RATE, DOWN = 60, 2.0  # Hz; seconds without the server


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, ready, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"{what}: not within {seconds} s")


def listens(port):
    socket.create_connection(("127.0.0.1", port), 1).close()
    return True


def ready(port):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).status == 200
    except OSError:
        return False


class Trial:
    """The programs of one trial; leaving it ends them."""

    def __init__(self, binaries):
        self.binaries, self.folder, self.running = binaries, tempfile.TemporaryDirectory(), []
        self.zenoh, self.health = free_port(), free_port()

    def start(self, *args, **more):
        process = subprocess.Popen([str(a) for a in args], **{"cwd": ROOT, "stderr": subprocess.DEVNULL} | more)
        self.running.append(process)
        return process

    def serve(self, manifest, **more):
        path = pathlib.Path(self.folder.name, "server.yaml")
        path.write_text(manifest + f'\nzenoh: {{listen_endpoints: ["tcp/127.0.0.1:{self.zenoh}"]}}\n'
                        f"health_port: {self.health}\n")
        server = self.start(self.binaries / "lean-server", "--manifest", path, stdout=subprocess.DEVNULL, **more)
        wait_for("lean-server serves", lambda: ready(self.health), 300)
        return server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        self.folder.cleanup()


def worker_of(server):
    """lean-server's worker: a child of any of its threads."""
    threads = pathlib.Path(f"/proc/{server.pid}/task").iterdir()
    return next((int(c) for t in threads for c in (t / "children").read_text().split()), None)


def with_plugin(folder, python, checkpoint=True):
    """The environment of a Python with LeRobot in which the plugin of the demo's policy is installed; on request its
    checkpoint is in the folder post."""
    entry = folder / "lerobot_policy_post-0.1.0.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: lerobot_policy_post\nVersion: 0.1.0\n")
    env = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}/tools/interop:{SERVERS.parent}", "HF_HUB_OFFLINE": "1"}
    if checkpoint:
        subprocess.run([python, LEROBOT, "checkpoint", folder / "post"], env=env, check=True)
    return env


def start_policy(t, runtime, port, args, env):
    """The program of a runtime whose server runs beside lean-server."""
    if runtime == "lerobot-async":
        started = t.start(args.lerobot, LEROBOT, "policy_server", port, env=env, cwd=t.folder.name, stdout=subprocess.DEVNULL)
    else:
        started = t.start(sys.executable, SERVERS, runtime, "--policy", "demo", "--bundle", BUNDLE, "--port", port,
                          "--cameras", "top", "--horizon", 50, stdout=subprocess.DEVNULL)
    wait_for(f"{runtime}'s server listens", lambda: listens(port), 180)
    return started


def through(runtime, args):
    port, seconds, down = free_port(), args.seconds, 0.0
    with Trial(args.binaries) as t:
        folder = pathlib.Path(t.folder.name)
        env = with_plugin(folder, args.lerobot) if runtime.startswith("lerobot") else None
        policy = start_policy(t, runtime, port, args, env) if "URL" in MODELS[runtime] else None
        model = MODELS[runtime].replace("URL", f"127.0.0.1:{port}").replace("FOLDER", str(folder / "post"))
        model = model.replace("PYTHON", str(args.lerobot))
        server = t.serve(f"model:\n  runtime: {runtime}\n{model}", env=env)
        arm = t.start(args.binaries / "edge-rt", "--bus", "sim", "--camera", "top=sim", "--fps", RATE,
                      "--connect", f"tcp/127.0.0.1:{t.zenoh}", "--wire-faults", SCENARIOS / f"{args.faults}.yaml",
                      "--duration", f"{seconds}s", "--record", "off", "--json", "-", stdout=subprocess.PIPE, text=True)
        time.sleep(seconds / 2)
        killed = time.monotonic()
        if policy:
            policy.kill()
            policy.wait()
            time.sleep(DOWN)
            start_policy(t, runtime, port, args, env)
        elif runtime == "lerobot":
            os.kill(worker_of(server), signal.SIGKILL)
            wait_for("lean-server notices", lambda: not ready(t.health))
        if runtime != "onnx":
            wait_for("lean-server serves again", lambda: ready(t.health), 120)
            down = time.monotonic() - killed
        out, _ = arm.communicate(timeout=seconds + 60)
        summary = json.loads(out)
    reached, starved = summary["targets_reached"], summary["starved_ticks"] / RATE
    print(f"{runtime}: {reached} targets in {seconds} s of {args.faults}, {summary['chunks']} chunks of "
          f"{summary['requests']} requests, {starved:.1f} s without an action"
          + (f"; its program was killed and away for {down:.1f} s" if down else ""))
    return arm.returncode == 0 and reached >= max(1, (seconds - down) / 10)


FRONT = f"model: {{repo_or_path: {BUNDLE}, id: demo/around-the-post}}\ndefault_task: around the post\nfronts: "


def openpi_client(args):
    port = free_port()
    with Trial(args.binaries) as t:
        t.serve(FRONT + f'{{openpi: {{listen: "127.0.0.1:{port}", api_key: secret}}}}')
        asked = t.start(sys.executable, CLIENT, f"ws://127.0.0.1:{port}", "--key", "secret", "--size", "120x160",
                        "--seconds", args.seconds, stdout=subprocess.PIPE, text=True)
        got = json.loads(asked.communicate(timeout=args.seconds + 60)[0])
    print(f"openpi-client: {got['requests']} requests in {args.seconds} s, {len(got['exceptions'])} exceptions, "
          f"p50 {got['ms_p50']:.1f} ms, p99 {got['ms_p99']:.1f} ms")
    return not got["exceptions"] and got["shape"] == [50, 6]


def robot_client(server, args):
    """LeRobot's released robot_client against lean-server's front or against the released policy_server."""
    port = free_port()
    with Trial(args.binaries) as t:
        folder = pathlib.Path(t.folder.name)
        env, kind = with_plugin(folder, args.lerobot, server == "policy_server"), "post"
        if server == "lean-server":
            t.serve(FRONT + f'{{lerobot: {{listen: "127.0.0.1:{port}"}}}}')
            kind = json.loads((BUNDLE / "bundle.json").read_text())["policy_type"]
        else:
            start_policy(t, "lerobot-async", port, args, env)
        asked = t.start(args.lerobot, LEROBOT, "client", f"127.0.0.1:{port}", args.seconds, kind, folder / "post", env=env,
                        cwd=folder, stdout=subprocess.PIPE, text=True)
        got = json.loads(asked.communicate(timeout=args.seconds + 120)[0].splitlines()[-1])
    print(f"robot_client with {server}: {got['actions']} actions in {got['seconds']} s, exceptions {got['exceptions']}, "
          f"errors {got['errors']}, queue least {got['queue_min']}, mean {got['queue_mean']}, empty {got['empty']} times")
    return not got["exceptions"] and not got["errors"] and got["actions"] > 20 * args.seconds


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries", type=lambda text: pathlib.Path(text).resolve())
    p.add_argument("--seconds", type=int, default=20)
    p.add_argument("--faults", default="loss_20_spikes")
    p.add_argument("--lerobot", type=os.path.abspath, metavar="PYTHON")
    p.add_argument("--only", help="one runtime or client")
    args = p.parse_args()
    trials = {runtime: lambda runtime=runtime: through(runtime, args) for runtime in MODELS
              if args.lerobot or not runtime.startswith("lerobot")}
    trials["openpi-client"] = lambda: openpi_client(args)
    if args.lerobot:
        trials["robot_client"] = lambda: robot_client("lean-server", args)
        trials["robot_client-policy_server"] = lambda: robot_client("policy_server", args)
    failed = [name for name, trial in trials.items() if args.only in (None, name) and not trial()]
    if failed:
        raise SystemExit(f"policies: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
