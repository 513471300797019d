"""Records the behaviour of LeRobot's own scheduling code for testdata/golden/lerobot_scheduling.json.

    pip download --no-deps lerobot==0.4.4
    unzip lerobot-0.4.4-py3-none-any.whl -d lerobot-0.4.4
    python scheduling_vectors.py lerobot-0.4.4 > ../../testdata/golden/lerobot_scheduling.json

Runs ActionQueue, RobotClient and PolicyServer of that wheel unmodified. Their other
imports are replaced: torch by numpy arrays in float32, whose products and sums round
equally; gRPC, robots, cameras, datasets and policies by empty modules, since a
scripted loop replaces the network. No weights, no devices, no threads.

Needs: numpy 2.
"""

import importlib.machinery
import json
import logging
import sys
import types
from pathlib import Path

import numpy as np

STATE = "observation.state"
REAL = {
    "lerobot.async_inference.configs",
    "lerobot.async_inference.constants",
    "lerobot.async_inference.helpers",
    "lerobot.async_inference.policy_server",
    "lerobot.async_inference.robot_client",
    "lerobot.policies.rtc.action_queue",
}
PACKAGES = {"lerobot", "lerobot.async_inference", "lerobot.policies", "lerobot.policies.rtc", "lerobot.utils"}


class Tensor(np.ndarray):
    """The methods of a tensor that the queue and the client use."""

    def clone(self):
        return self.copy()

    def unsqueeze(self, axis):
        return np.expand_dims(self, axis)

    def item(self):
        return float(np.ndarray.item(self))


def tensor(rows):
    return np.asarray(rows, dtype=np.float32).view(Tensor)


class Whatever(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Whatever(name, (Anything,), {})


class Anything(metaclass=Whatever):
    """The value of an import from a replaced module: a base class, a decorator, or a function without effect."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args and callable(args[0]) else None

    def __class_getitem__(cls, item):
        return cls


class Played(types.ModuleType):
    __path__: list = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Whatever(name, (Anything,), {})


class Finder:
    """Finds the wheel's files for REAL, and an empty module for their other imports."""

    def __init__(self, wheel):
        self.wheel = wheel

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if name in REAL:
            file = self.wheel / (name.replace(".", "/") + ".py")
            loader = importlib.machinery.SourceFileLoader(name, str(file))
            return importlib.machinery.ModuleSpec(name, loader, origin=str(file))
        if top in ("lerobot", "torch", "grpc", "draccus", "matplotlib"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Played(spec.name)
        if spec.name in PACKAGES:
            module.__path__ = []
        return module

    def exec_module(self, module):
        if module.__name__ == "torch":
            module.Tensor = Tensor
            module.cat = lambda parts: np.concatenate(parts).view(Tensor)
            module.tensor = tensor
            module.linalg = types.SimpleNamespace(norm=lambda x: np.linalg.norm(x.reshape(-1)).astype(np.float32))
        if module.__name__ == "lerobot.utils.constants":
            module.OBS_STATE, module.OBS_IMAGES, module.OBS_STR = STATE, "observation.images", "observation"
        if module.__name__ == "lerobot.datasets.utils":
            module.build_dataset_frame = lambda features, values, prefix: {STATE: values[STATE]}


def queue_case(ActionQueue, rng, name, enabled, ops):
    """A random sequence of operations on an ActionQueue of two joints."""
    q = ActionQueue(types.SimpleNamespace(enabled=enabled))
    trace, value = [], 0.0
    for _ in range(ops):
        op = rng.choice(["merge", "get", "get", "get", "left"])
        if op == "merge":
            n, delay = int(rng.integers(1, 9)), int(rng.integers(0, 12))
            rows = (value + np.arange(2 * n).reshape(n, 2) * 0.1).astype(np.float32)
            value += 10
            before = int(rng.integers(0, 3))
            q.merge(tensor(-rows), tensor(rows), delay, before)
            step = {"op": "merge", "rows": rows.tolist(), "delay": delay}
        elif op == "get":
            a = q.get()
            step = {"op": "get", "row": None if a is None else a.tolist()}
        else:
            left = q.get_left_over()
            step = {"op": "left", "rows": None if left is None else left.tolist()}
        step |= {"qsize": q.qsize(), "empty": q.empty(), "index": q.get_action_index()}
        trace.append(step)
    return {"name": name, "rtc": enabled, "trace": trace}


class Rig:
    """A RobotClient and a PolicyServer without a network between them, ticked by hand.

    In each tick the client runs an action if it has one, takes a chunk that has arrived,
    and sends an observation if it is ready to. The server starts on its queued
    observation as soon as it is free, and its chunk arrives `latency` ticks later.
    """

    def __init__(self, mod, threshold, aggregate, chunk, latency, speed, lose=()):
        self.mod, self.chunk, self.latency, self.speed, self.lose = mod, chunk, latency, speed, set(lose)
        c = object.__new__(mod.client.RobotClient)
        c.shutdown_event = mod.client.threading.Event()
        c.latest_action_lock, c.action_queue_lock = mod.client.threading.Lock(), mod.client.threading.Lock()
        c.latest_action, c.action_chunk_size = -1, -1
        c._chunk_size_threshold = threshold
        c.action_queue, c.action_queue_size = mod.client.Queue(), []
        c.must_go = mod.client.threading.Event()
        c.must_go.set()
        c.robot = types.SimpleNamespace(
            action_features=["a"],
            send_action=self.act,
            get_observation=lambda: {STATE: [self.at, 0.0]},
        )
        c.send_observation = self.send
        s = object.__new__(mod.server.PolicyServer)
        s.observation_queue = mod.client.Queue(maxsize=1)
        s._predicted_timesteps_lock, s._predicted_timesteps = mod.client.threading.Lock(), set()
        s.last_processed_obs, s.lerobot_features = None, {}
        s.config = types.SimpleNamespace(environment_dt=1 / 30)
        self.client, self.server = c, s
        self.fn = mod.configs.get_aggregate_function(aggregate)
        self.at, self.ran, self.sent, self.busy, self.answers = 0.0, None, None, None, 0

    def act(self, action):
        self.ran = action["a"]
        self.at += self.speed

    def send(self, obs):
        took = self.server._enqueue_observation(obs)
        self.sent = {"label": obs.get_timestep(), "must_go": obs.must_go, "enqueued": took}
        return True

    def serve(self, tick):
        """Starts on the queued observation, as GetActions does."""
        if self.busy is None and not self.server.observation_queue.empty():
            obs = self.server.observation_queue.get_nowait()
            self.server._predicted_timesteps.add(obs.get_timestep())
            self.server.last_processed_obs = obs
            self.busy = (tick + self.latency, obs.get_timestep())

    def arrive(self, tick):
        if self.busy is None or self.busy[0] != tick:
            return None
        label, self.busy = self.busy[1], None
        self.answers += 1
        if self.answers in self.lose:
            return None
        rows = [tensor([np.float32(label) + np.float32(0.01) * i + self.answers]) for i in range(self.chunk)]
        chunk = self.server._time_action_chunk(0.0, rows, label)
        self.client.action_chunk_size = max(self.client.action_chunk_size, len(chunk))
        self.client._aggregate_action_queues(chunk, self.fn)
        self.client.must_go.set()
        return label

    def tick(self, t):
        c = self.client
        self.ran, self.sent = None, None
        if c.actions_available():
            c.control_loop_action()
        came = self.arrive(t)
        self.serve(t)  # it was free before the observation of this tick
        ready = c._ready_to_send_observation()
        if ready:
            c.control_loop_observation("task")
        self.serve(t)
        return {"ran": self.ran, "latest": c.latest_action, "came": came, "size": c.action_queue.qsize(), "sent": self.sent}


def episode(mod, name, ticks, **how):
    rig = Rig(mod, **how)
    return {"name": name, **{k: list(v) if k == "lose" else v for k, v in how.items()}, "ticks": [rig.tick(t) for t in range(ticks)]}


def aggregates(mod, rng):
    cases = []
    for name in mod.configs.AGGREGATE_FUNCTIONS:
        f = mod.configs.get_aggregate_function(name)
        old, new = tensor(rng.normal(0, 60, 12)), tensor(rng.normal(0, 60, 12))
        cases.append({"name": name, "old": old.tolist(), "new": new.tolist(), "out": f(old, new).tolist()})
    return cases


def similarities(mod, rng):
    cases = []
    for spread in (0.05, 0.3, 0.4, 0.41, 0.6, 3):
        a = rng.normal(0, 40, 6).astype(np.float32)
        b = (a + rng.normal(0, spread, 6)).astype(np.float32)
        obs = [mod.helpers.TimedObservation(0.0, 0, {STATE: x.tolist()}) for x in (a, b)]
        cases.append({"a": a.tolist(), "b": b.tolist(), "similar": bool(mod.helpers.observations_similar(*obs, {}))})
    return cases


def main():
    logging.disable(logging.CRITICAL)
    sys.meta_path.insert(0, Finder(Path(sys.argv[1])))
    from lerobot.policies.rtc.action_queue import ActionQueue

    import lerobot.async_inference.helpers as helpers

    helpers.get_logger = lambda *args, **kwargs: logging.getLogger("lerobot")
    import lerobot.async_inference.configs as configs
    import lerobot.async_inference.policy_server as server
    import lerobot.async_inference.robot_client as client

    mod = types.SimpleNamespace(helpers=helpers, configs=configs, server=server, client=client)
    rng = np.random.default_rng(8)
    out = {
        "_about": {"source": "lerobot 0.4.4 from PyPI, executed", "by": "tools/lerobot/scheduling_vectors.py", "numpy": np.__version__},
        "action_queue": [queue_case(ActionQueue, rng, f"{'rtc' if e else 'append'}_{i}", e, 60) for e in (True, False) for i in range(4)],
        "aggregate": aggregates(mod, rng),
        "similarity": similarities(mod, rng),
        "client": [
            episode(mod, "fast arm, answers at once", 90, threshold=0.5, aggregate="weighted_average", chunk=20, latency=1, speed=2.0),
            episode(mod, "fast arm", 120, threshold=0.5, aggregate="weighted_average", chunk=20, latency=6, speed=2.0),
            episode(mod, "fast arm, latest only", 90, threshold=0.7, aggregate="latest_only", chunk=20, latency=4, speed=2.0),
            episode(mod, "fast arm, average", 90, threshold=0.7, aggregate="average", chunk=20, latency=4, speed=2.0),
            episode(mod, "fast arm, conservative", 90, threshold=0.9, aggregate="conservative", chunk=20, latency=3, speed=2.0),
            episode(mod, "answers too late for the threshold", 120, threshold=0.2, aggregate="weighted_average", chunk=12, latency=9, speed=2.0),
            episode(mod, "answers later than a chunk", 150, threshold=0.5, aggregate="weighted_average", chunk=10, latency=14, speed=2.0),
            episode(mod, "slow arm is filtered, then must go", 150, threshold=0.5, aggregate="weighted_average", chunk=20, latency=1, speed=0.04),
            episode(mod, "arm that moves a little while an answer is under way", 80, threshold=0.7, aggregate="average", chunk=10, latency=13, speed=0.3),
            episode(mod, "arm that stands still", 100, threshold=0.5, aggregate="weighted_average", chunk=20, latency=1, speed=0.0),
            episode(mod, "a lost answer with nothing left stops it", 90, threshold=0.5, aggregate="weighted_average", chunk=20, latency=3, speed=0.0, lose=[2]),
        ],
    }
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
