"""Compares lean-server with torch eager and with LeRobot's own policy server.

    make build
    .venv-export/bin/pip install -r tools/export/requirements-compare.txt
    .venv-export/bin/python tools/export/compare.py CHECKPOINT BUNDLE [--task TEXT] [--json FILE] [--into FILE]

Each subject gets the same observations and as many threads, in a process of its own that
runs alone. The subjects take turns, in another order every round, so that a machine that
becomes slower slows all of them. Times are measured at the client, from the observation
to its chunk.
"""

import argparse
import contextlib
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SUBJECTS = {"lean-server": "lean-server", "torch": "torch eager, in the asking process", "lerobot-server": "LeRobot's policy server (gRPC)"}
REPORT_VERSION = 1

# How long a subject may take to load, to answer, and to end.
LOAD_SECONDS = 600.0
CHUNK_SECONDS = 300.0
END_SECONDS = 10.0


class CompareError(Exception):
    """An error that the user can cure."""


# Measurements of a process.


def status(pid: int) -> dict[str, float]:
    """Memory of a process in MiB: now, at its peak, and of the present amount the private part and the part of mapped
    files (weights, which the kernel can drop)."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    names = {"rss_mib": "VmRSS", "peak_rss_mib": "VmHWM", "anon_mib": "RssAnon", "file_mib": "RssFile"}
    return {ours: int(lines[theirs].split()[0]) / 1024 for ours, theirs in names.items()}


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def process(command: list[str], log: Path, env: dict[str, str], cwd: Path, **pipes):
    """Runs a command and ends it. Its output is in the log."""
    with log.open("wb") as out:
        child = subprocess.Popen(command, stderr=out, env={**os.environ, **env}, cwd=cwd, **{"stdout": out, **pipes})
    try:
        yield child
    except Exception as e:
        raise CompareError(f"{command[0]}: {e}; it said: {log.read_text(errors='replace')[-2000:]}") from e
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(child: subprocess.Popen, ready) -> None:
    """Polls every 10 ms until a process is ready."""
    end = time.monotonic() + LOAD_SECONDS
    while not ready():
        if child.poll() is not None:
            raise CompareError(f"it ended with {child.returncode} before it was ready")
        if time.monotonic() > end:
            raise CompareError(f"it was not ready after {LOAD_SECONDS:g} s")
        time.sleep(0.01)  # a process does not announce that it has loaded


# The subjects: each is a context manager that yields the process and a function from an
# observation to its chunk in robot units and the times that the server reports.


@contextlib.contextmanager
def lean_server(job, folder: Path):
    import zenoh

    port, health = free_port(), free_port()
    manifest = {
        "model": {"repo_or_path": str(job.bundle), "id": "policy"}, "service": "compare", "threads": job.threads,
        "zenoh": {"listen_endpoints": [f"tcp/127.0.0.1:{port}"]}, "health_port": health,
    }  # fmt: skip
    path = folder / "server.yaml"
    path.write_text(json.dumps(manifest))

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz", timeout=5) as page:
                return page.status == 200
        except OSError:
            return False

    with process([str(job.server), "--manifest", str(path)], folder / "lean-server.log", {}, ROOT) as child:
        wait_for(child, ready)
        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", json.dumps([f"tcp/127.0.0.1:{port}"]))
        config.insert_json5("scouting/multicast/enabled", "false")
        with zenoh.open(config) as session:
            yield child, Robot(session, job).ask


class Robot:
    """A client of lean-server with one session, by LeRobot's draft protocol: docs/wire.md."""

    PREFIX = "@lerobot/policy/main/compare"
    NAME = "compare"
    HEADER = struct.Struct("<HBQIqI")  # schema, type, sequence, episode, clock, epoch
    OBSERVATION, CHUNK, EVENT = 1, 2, 3

    def __init__(self, session, job):
        import zenoh

        self.job, self.sequence, self.answers = job, 0, SimpleQueue()
        self.held = [
            session.liveliness().declare_token(f"{self.PREFIX}/{self.NAME}/alive"),
            session.declare_subscriber(f"{self.PREFIX}/{self.NAME}/action", lambda s: self.answers.put((s.attachment.to_bytes(), s.payload.to_bytes()))),
        ]
        self.publisher = session.declare_publisher(f"{self.PREFIX}/{self.NAME}/obs", congestion_control=zenoh.CongestionControl.BLOCK, express=True)
        meta = job.meta
        ack = self._query(session, {
            "op": "open", "client_uuid": self.NAME, "robot_type": "compare", "fps": meta["fps"], "action_names": meta["action_names"], "state_dim": len(meta["state_names"]),
            "camera_names": [self._camera(c) for c in job.cameras()], "schema_version": 1, "rtc_enabled": False, "task": job.task, "tags": {},
            **{k: meta[k] for k in ("action_units", "state_units") if k in meta},
        })  # fmt: skip
        if not ack["accepted"]:
            raise CompareError(f"lean-server refused the session: {ack['error']}")

    @staticmethod
    def _camera(name: str) -> str:
        return name if name.startswith("observation.") else f"observation.images.{name}"

    def _query(self, session, body: dict[str, Any]) -> dict[str, Any]:
        import msgpack

        for reply in session.get(f"{self.PREFIX}/session", payload=msgpack.packb(body), timeout=CHUNK_SECONDS):
            if reply.ok is not None:
                return msgpack.unpackb(reply.ok.payload.to_bytes())
        raise CompareError("lean-server did not answer the session's opening")

    def ask(self, observation: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, float]]:
        import msgpack

        self.sequence += 1
        state = observation["state"]
        body = msgpack.packb({
            "state": {"dtype": "<f4", "shape": list(state.shape), "data": state.tobytes()},
            "images": {self._camera(c): {"codec": "raw", "shape": list(observation[f"image.{c}"].shape), "data": observation[f"image.{c}"].tobytes()} for c in self.job.cameras()},
            "task": self.job.task, "inference_delay_steps": 0, "episode_start": self.sequence == 1,
        })  # fmt: skip
        self.publisher.put(body, attachment=self.HEADER.pack(1, self.OBSERVATION, self.sequence, 0, time.monotonic_ns(), 0))
        try:
            header, answer = self.answers.get(timeout=CHUNK_SECONDS)
        except Empty:
            raise CompareError("no chunk came") from None
        kind, chunk = self.HEADER.unpack(header)[1], msgpack.unpackb(answer)
        if kind != self.CHUNK:
            raise CompareError(f"an event instead of a chunk: {chunk}")
        tensor = chunk["chunk_robot"]
        return np.frombuffer(tensor["data"], tensor["dtype"]).reshape(tensor["shape"]), {"server_ms": chunk["inference_ms"]}


@contextlib.contextmanager
def torch_eager(job, folder: Path):
    """The policy in a process of its own that loads it and answers over a pipe. That process
    measures the times, so they do not include the pipe."""
    command = [sys.executable, __file__, "--as-torch", str(job.checkpoint), str(job.bundle), "--threads", str(job.threads), "--task", job.task]
    with process(command, folder / "torch.log", job.env(), folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:

        def answer() -> dict[str, Any]:
            line = child.stdout.readline()
            if not line:
                raise CompareError("it ended")
            return json.loads(line)

        def ask(observation: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, float]]:
            path = folder / "observation.npz"
            np.savez(path, **observation)
            child.stdin.write(f"{path}\n".encode())
            child.stdin.flush()
            said = answer()
            return np.asarray(said.pop("chunk"), np.float32), said

        answer()  # it has loaded
        yield child, ask


def serve_torch(job) -> None:
    """The other end of torch_eager: the steps of LeRobot's own recording loop."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LeRobot's prints must not get among the answers
    import torch
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors
    from lerobot.policies.utils import prepare_observation_for_inference

    torch.set_num_threads(job.threads)
    policy = get_policy_class(job.meta["policy_type"]).from_pretrained(str(job.checkpoint))
    policy.to("cpu").eval()
    pre, post = make_pre_post_processors(policy.config, pretrained_path=str(job.checkpoint), preprocessor_overrides={"device_processor": {"device": "cpu"}}, postprocessor_overrides={"device_processor": {"device": "cpu"}})

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what), file=out, flush=True)

    say({"loaded": True})
    for line in sys.stdin:
        given = np.load(line.strip())
        began = time.perf_counter()
        observation = {f"observation.images.{c}": given[f"image.{c}"] for c in job.cameras()} | {"observation.state": given["state"]}
        with torch.inference_mode():
            batch = pre(prepare_observation_for_inference(observation, torch.device("cpu"), task=job.task))
            chunk = post(policy.predict_action_chunk(batch))
        took = 1e3 * (time.perf_counter() - began)
        say({"own_ms": took, "chunk": chunk[0].tolist()})


@contextlib.contextmanager
def lerobot_server(job, folder: Path):
    """LeRobot's asynchronous policy server, with the requests of LeRobot's robot client."""
    import pickle

    import grpc
    from lerobot.async_inference.helpers import RemotePolicyConfig, TimedObservation
    from lerobot.transport import services_pb2, services_pb2_grpc
    from lerobot.transport.utils import grpc_channel_options, send_bytes_in_chunks

    port, names = free_port(), job.meta["state_names"]
    shapes = {c["name"]: (c["height"], c["width"], 3) for c in job.meta["cameras"]}
    features = {f"observation.images.{c}": {"dtype": "image", "shape": s, "names": ["height", "width", "channels"]} for c, s in shapes.items()}
    features["observation.state"] = {"dtype": "float32", "shape": (len(names),), "names": names}
    # The server delays every chunk until inference_latency has passed; 0: no delay.
    command = [sys.executable, "-m", "lerobot.async_inference.policy_server", "--host=127.0.0.1", f"--port={port}", f"--fps={max(1, round(job.meta['fps']))}", "--inference_latency=0", "--obs_queue_timeout=60"]
    with process(command, folder / "lerobot-server.log", job.env(), folder) as child:
        with grpc.insecure_channel(f"127.0.0.1:{port}", grpc_channel_options()) as channel:
            connected = grpc.channel_ready_future(channel)
            wait_for(child, connected.done)
            stub = services_pb2_grpc.AsyncInferenceStub(channel)
            stub.Ready(services_pb2.Empty())
            wanted = RemotePolicyConfig(job.meta["policy_type"], str(job.checkpoint), features, job.meta["chunk_size"], "cpu")
            stub.SendPolicyInstructions(services_pb2.PolicySetup(data=pickle.dumps(wanted)), timeout=LOAD_SECONDS)
            steps = itertools.count()

            def ask(observation: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, float]]:
                raw = {c: observation[f"image.{c}"] for c in shapes} | dict(zip(names, observation["state"].tolist(), strict=True)) | {"task": job.task}
                coming = stub.GetActions.future(services_pb2.Empty(), timeout=CHUNK_SECONDS)
                sent = pickle.dumps(TimedObservation(timestamp=time.time(), timestep=next(steps), observation=raw, must_go=True))
                stub.SendObservations(send_bytes_in_chunks(sent, services_pb2.Observation))
                data = coming.result().data
                if not data:
                    raise CompareError("an empty answer instead of a chunk")
                return np.stack([a.get_action().numpy() for a in pickle.loads(data)]), {}

            yield child, ask


def answer_turns(job) -> None:
    """One robot of LeRobot's server for `bench serve --beside`. Sends requests back to back for the seconds in each line of stdin."""
    pictures, names = Path(os.environ["BENCH_PICTURES"]), job.meta["state_names"]
    observation: dict[str, np.ndarray] = {"state": np.zeros(len(names), np.float32)}
    for camera in job.meta["cameras"]:
        observation[f"image.{camera['name']}"] = np.fromfile(pictures / f"{camera['name']}.rgb", np.uint8).reshape(camera["height"], camera["width"], 3)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LeRobot's prints must not get among the answers
    with tempfile.TemporaryDirectory(prefix="compare-") as folder, lerobot_server(job, Path(folder)) as (_, ask):
        ask(observation)
        print("ready", file=out, flush=True)
        for line in sys.stdin:
            trips, began = [], time.perf_counter()
            while time.perf_counter() - began < float(line):
                start = time.perf_counter()
                ask(observation)
                trips.append(1e3 * (time.perf_counter() - start))
            print(json.dumps({"seconds": time.perf_counter() - began, "trip_ms": trips}), file=out, flush=True)


RUN = {"lean-server": lean_server, "torch": torch_eager, "lerobot-server": lerobot_server}


# The comparison.


class Job:
    """The checkpoint and the bundle of a comparison, and its options."""

    def __init__(self, args: argparse.Namespace):
        self.checkpoint, self.bundle, self.server = args.checkpoint.resolve(), args.bundle.resolve(), args.server.resolve()
        self.threads, self.task, self.torch_env = args.threads, args.task, dict(args.torch_env)
        try:
            self.meta = json.loads((self.bundle / "bundle.json").read_text())
        except OSError as e:
            raise CompareError(f"{self.bundle}: {e.strerror}: want a bundle of edgert-export") from None

    def cameras(self) -> list[str]:
        return [c["name"] for c in self.meta["cameras"]]

    def env(self) -> dict[str, str]:
        """The environment of torch: its threads, and no waiting for the hub, since the checkpoint is local."""
        return {"OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore", **self.torch_env}

    def observations(self, count: int) -> list[dict[str, np.ndarray]]:
        """Smooth pictures and states between the limits of the data, the same in every run."""
        rng, found = np.random.default_rng(18), []
        low, high = np.asarray(self.meta.get("state_limits") or [[-1.0, 1.0]] * len(self.meta["state_names"])).T
        for _ in range(count):
            one = {"state": rng.uniform(low, high).astype(np.float32)}
            for camera in self.meta["cameras"]:
                y, x = np.mgrid[0 : camera["height"], 0 : camera["width"]]
                phase = rng.uniform(0, 6, 3)
                wave = np.sin(x[..., None] / 40 + phase) * np.cos(y[..., None] / 30 + phase)
                one[f"image.{camera['name']}"] = np.clip(127.5 + 100 * wave + rng.normal(0, 8, wave.shape), 0, 255).astype(np.uint8)
            found.append(one)
        return found


def slice_of(job: Job, subject: str, observations: list[dict[str, np.ndarray]]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Starts one subject and measures loading, a first chunk and a chunk for each observation. Returns its
    measurements and chunks."""
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        began = time.perf_counter()
        with RUN[subject](job, Path(folder)) as (child, ask):
            result: dict[str, Any] = {"ready_s": time.perf_counter() - began, "loaded": status(child.pid)}
            ask(observations[0])
            result["first_chunk_s"] = time.perf_counter() - began
            chunks, times, said, cpu = [], [], [], cpu_seconds(child.pid)
            for observation in observations:
                start = time.perf_counter()
                chunk, more = ask(observation)
                times.append(more.pop("own_ms", 1e3 * (time.perf_counter() - start)))
                chunks.append(chunk)
                said.append(more)
            result |= {"chunk_ms": times, "cpu_ms": 1e3 * (cpu_seconds(child.pid) - cpu) / len(observations), **status(child.pid)}
            if any(said):
                result["server_ms"] = [s["server_ms"] for s in said]
    return result, chunks


def compare(job: Job, subjects: list[str], rounds: int, chunks: int) -> dict[str, Any]:
    observations = job.observations(chunks)
    slices: dict[str, list[dict[str, Any]]] = {s: [] for s in subjects}
    answers: dict[str, list[np.ndarray]] = {}
    for i in range(rounds):
        turn = i % len(subjects)
        for subject in subjects[turn:] + subjects[:turn]:
            result, answers[subject] = slice_of(job, subject, observations)
            slices[subject].append(result)
            print(f"round {i + 1}: {subject}: {np.median(result['chunk_ms']):.1f} ms, {result['rss_mib']:.0f} MiB, ready after {result['ready_s']:.1f} s", file=sys.stderr, flush=True)
    from edgert_export import timing

    report: dict[str, Any] = {
        "report_version": REPORT_VERSION, "policy_type": job.meta["policy_type"], "threads": job.threads, "torch_env": job.torch_env, "rounds": rounds, "chunks": chunks,
        "machine": timing.machine(), "versions": versions(), "subjects": {s: summary(r) for s, r in slices.items()}, "slices": slices,
    }  # fmt: skip
    ours = report["subjects"].get("lean-server")
    if ours:
        report["ratios"] = {s: {k: other[k]["median"] / ours[k]["median"] for k in RATIOS} for s, other in report["subjects"].items() if s != "lean-server"}
        # Without noise, equal policies give equal chunks.
        if not job.meta.get("noise_dim"):
            report["largest_difference"] = {s: max(float(np.abs(a - b).max()) for a, b in zip(answers["lean-server"], got, strict=True)) for s, got in answers.items() if s != "lean-server"}
    return report


RATIOS = ("chunk_ms", "cpu_ms", "rss_mib", "peak_rss_mib", "ready_s", "first_chunk_s")


def summary(slices: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median and range of every measurement, over all chunks where each chunk has a value."""
    found = {}
    for key in [*RATIOS, "anon_mib", "file_mib", *(["server_ms"] if "server_ms" in slices[0] else [])]:
        values = np.concatenate([np.atleast_1d(s[key]) for s in slices])
        found[key] = {"median": float(np.median(values)), "min": float(values.min()), "max": float(values.max())}
    return found


def versions() -> dict[str, str]:
    from importlib import metadata

    return {p: metadata.version(p) for p in ("lerobot", "torch", "grpcio", "eclipse-zenoh")}


# The report for people.


def table(report: dict[str, Any]) -> str:
    def cell(value: dict[str, float], digits: int = 0) -> str:
        return f"{value['median']:.{digits}f} ({value['min']:.{digits}f}–{value['max']:.{digits}f})"

    lines = [
        "| | ms for a chunk | CPU ms for a chunk | memory MiB | peak MiB | ready s | first chunk s |",
        "|---|---|---|---|---|---|---|",
    ]
    for subject, s in report["subjects"].items():
        times = [cell(s[k]) for k in ("chunk_ms", "cpu_ms", "rss_mib", "peak_rss_mib")] + [cell(s[k], 1) for k in ("ready_s", "first_chunk_s")]
        lines.append(f"| {SUBJECTS[subject]} | " + " | ".join(times) + " |")
    for subject, r in report.get("ratios", {}).items():
        lines.append(f"| {SUBJECTS[subject]} / lean-server | " + " | ".join(f"{r[k]:.2f}" for k in RATIOS) + " |")
    m, v = report["machine"], report["versions"]
    text = f"{report['policy_type']}: medians (smallest–largest) of {report['rounds']} starts with {report['chunks']} chunks each, {report['threads']} threads; {m['cpu']}, {m['cores']} cores, {m['architecture']}; LeRobot {v['lerobot']}, torch {v['torch']}."
    return "\n".join([*lines, "", text])


def put(path: Path, name: str, text: str) -> None:
    """Replaces the text between <!-- compare NAME --> and <!-- end -->."""
    whole = path.read_text(encoding="utf-8")
    head, begin, rest = whole.partition(f"<!-- compare {name} -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    if not begin or not end:
        raise CompareError(f"{path} has no lines '<!-- compare {name} -->' and '<!-- end -->' for the table: put them where it belongs")
    path.write_text(f"{head}{begin}\n{text}\n\n{end}{tail}", encoding="utf-8")


def count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"got {text}, want 1 to 1000")
    return value


def subjects(text: str) -> list[str]:
    found = text.split(",")
    if not set(found) <= set(SUBJECTS):
        raise argparse.ArgumentTypeError(f"got {text!r}, want some of {', '.join(SUBJECTS)}, separated by commas")
    return found


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"got {text!r}, want NAME=VALUE")
    return name, value


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description="Compares lean-server with torch eager and with LeRobot's own policy server.")
    p.add_argument("checkpoint", type=Path, help="LeRobot's folder")
    p.add_argument("bundle", type=Path, help="what edgert-export made of it")
    p.add_argument("--task", default="Pick up the red cube.")
    p.add_argument("--threads", type=count, default=2, help="of each subject's inferences (default 2)")
    p.add_argument("--rounds", type=count, default=6, help="starts of each subject (default 6)")
    p.add_argument("--chunks", type=count, default=20, help="of each start (default 20)")
    p.add_argument("--subjects", type=subjects, default=list(SUBJECTS), metavar="A,B,...", help="of " + ", ".join(SUBJECTS))
    p.add_argument("--server", type=Path, default=ROOT / "bin" / "lean-server")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    p.add_argument("--into", type=Path, metavar="FILE", help="replace the table of this policy's type in a Markdown file")
    # OpenMP's threads busy-wait unless they outnumber the cores, which is expensive when other
    # programs run too; LeRobot's server infers in a second pool, whose threads do not busy-wait.
    p.add_argument("--torch-env", type=setting, action="append", default=[], metavar="NAME=VALUE", help="variables for torch and LeRobot's server, such as OMP_WAIT_POLICY=PASSIVE on a machine that does other things too")
    p.add_argument("--as-torch", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--as-robot", action="store_true", help="ask LeRobot's server for `bench serve --beside` (docs/lab/serving.md)")
    return p


def main() -> int:
    args = parser().parse_args()
    try:
        job = Job(args)
        if args.as_torch:
            serve_torch(job)
            return 0
        if args.as_robot:
            job.threads = int(os.environ["BENCH_THREADS"])
            answer_turns(job)
            return 0
        if not job.server.exists():
            raise CompareError(f"{job.server} is not there: make build")
        report = compare(job, args.subjects, args.rounds, args.chunks)
        text = table(report)
        print(text)
        if args.json:
            args.json.write_text(json.dumps(report, indent=1) + "\n")
        if args.into:
            put(args.into, job.meta["policy_type"], text)
    except CompareError as e:
        print(f"compare: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
