"""Policy servers and clients of other projects against lean-server and a simulated arm.

    policies.py BIN-FOLDER [--seconds N]

openpi's released server, and a server of GR00T's documented protocol, compute the demo policy in ONNX Runtime; the
arm has to reach targets through each, also after the server was killed and started again. Then openpi's released
client asks lean-server's own front. Ends with an error if one of them fails.
"""

import argparse
import json
import pathlib
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
JOINTS = "shoulder_pan.pos, shoulder_lift.pos, elbow_flex.pos, wrist_flex.pos, wrist_roll.pos, gripper.pos"
RUNTIMES = {
    "openpi": ("ws", "observation/image", ""),
    "gr00t": (
        "tcp",
        "video.top",
        """
    state_keys: [{key: state.single_arm, size: 5}, {key: state.gripper, size: 1}]
    action_keys: [{key: action.single_arm, size: 5}, {key: action.gripper, size: 1}]""",
    ),
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
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).status == 200


class Trial:
    """The programs of one trial; leaving it ends them."""

    def __init__(self, binaries):
        self.binaries, self.folder, self.running = binaries, tempfile.TemporaryDirectory(), []
        self.zenoh, self.health = free_port(), free_port()

    def start(self, *args, **more):
        process = subprocess.Popen([str(a) for a in args], cwd=ROOT, stderr=subprocess.DEVNULL, **more)
        self.running.append(process)
        return process

    def serve(self, manifest):
        path = pathlib.Path(self.folder.name, "server.yaml")
        path.write_text(manifest + f'\nzenoh: {{listen_endpoints: ["tcp/127.0.0.1:{self.zenoh}"]}}\n'
                        f"health_port: {self.health}\n")
        self.start(self.binaries / "lean-server", "--manifest", path, stdout=subprocess.DEVNULL)
        wait_for("lean-server serves", lambda: ready(self.health))

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


def through(runtime, binaries, seconds):
    scheme, key, keys = RUNTIMES[runtime]
    port = free_port()
    with Trial(binaries) as t:
        def policy():
            started = t.start(sys.executable, SERVERS, runtime, "--policy", "demo", "--bundle", BUNDLE, "--port", port,
                              "--cameras", "top", "--horizon", 50, stdout=subprocess.DEVNULL)
            wait_for(f"{runtime}'s server listens", lambda: listens(port))
            return started

        first = policy()
        t.serve(f"""model:
  runtime: {runtime}
  url: "{scheme}://127.0.0.1:{port}"
  inputs:{keys}
    fps: {RATE}
    chunk_size: 50
    action_names: [{JOINTS}]
    action_units: [degrees, degrees, degrees, degrees, degrees, range_0_100]
    cameras: [{{name: top, key: {key}, height: 120, width: 160}}]
""")
        arm = t.start(binaries / "edge-rt", "--bus", "sim", "--camera", "top=sim", "--connect",
                      f"tcp/127.0.0.1:{t.zenoh}", "--duration", f"{seconds}s", "--record", "off", "--json", "-",
                      stdout=subprocess.PIPE, text=True)
        time.sleep(seconds / 2)
        first.kill()
        first.wait()
        time.sleep(DOWN)
        policy()
        out, _ = arm.communicate(timeout=seconds + 60)
        summary = json.loads(out)
    reached, starved = summary["targets_reached"], summary["starved_ticks"] / RATE
    print(f"{runtime}: {reached} targets in {seconds} s, {summary['chunks']} chunks of {summary['requests']} requests, "
          f"{starved:.1f} s without an action beside a server that was away for {DOWN:.0f} s and started again")
    return arm.returncode == 0 and reached >= seconds / 10


def client(binaries, seconds):
    port = free_port()
    with Trial(binaries) as t:
        t.serve(f"model: {{repo_or_path: {BUNDLE}, id: demo/around-the-post}}\ndefault_task: around the post\n"
                f'fronts: {{openpi: {{listen: "127.0.0.1:{port}", api_key: secret}}}}')
        asked = t.start(sys.executable, CLIENT, f"ws://127.0.0.1:{port}", "--key", "secret", "--size", "120x160",
                        "--seconds", seconds, stdout=subprocess.PIPE, text=True)
        got = json.loads(asked.communicate(timeout=seconds + 60)[0])
    print(f"openpi-client: {got['requests']} requests in {seconds} s, {len(got['exceptions'])} exceptions, "
          f"p50 {got['ms_p50']:.1f} ms, p99 {got['ms_p99']:.1f} ms")
    return not got["exceptions"] and got["shape"] == [50, 6]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries", type=lambda text: pathlib.Path(text).resolve())
    p.add_argument("--seconds", type=int, default=20)
    args = p.parse_args()
    passed = [through(runtime, args.binaries, args.seconds) for runtime in RUNTIMES]
    if not all(passed + [client(args.binaries, args.seconds)]):
        raise SystemExit("policies: failed")


if __name__ == "__main__":
    main()
