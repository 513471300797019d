# Replaces the policy of worker.py: two joints, one camera, chunks of 4 rows. The task names the fault to produce.
import subprocess


class FakeSession:
    def __init__(self):
        self.requests = 0


class FakePolicy:
    state = os.environ.get("FAKE_STATE", "none")
    device = "cpu"

    def __init__(self, progress):
        progress("importing")
        self.folder = json.loads(os.environ["LEAN_WORKER"])["policy"]
        if os.environ.get("FAKE_FAULT"):
            raise Fault(os.environ["FAKE_FAULT"])
        if os.environ.get("FAKE_EXIT"):
            print("no such weights", flush=True)
            os._exit(7)
        self.sessions, self.own, self.served = {}, FakeSession(), False

    def hello(self):
        return {
            "version": 1, "policy_type": "fake", "lerobot": "0", "torch": "0", "python": "3", "folder": self.folder,
            "device": "cpu", "fps": 30, "chunk_size": 4, "n_action_steps": 4, "action_dim": 2, "action_names": ["a.pos", "b.pos"],
            "state_names": ["a.pos", "b.pos"], "cameras": [{"name": "top", "height": 4, "width": 6}], "observation_steps": 1,
            "rtc": True, "num_steps": 10, "execution_horizon": 3, "state": self.state, "max_batch": 2, "reads_task": True,
        }  # fmt: skip

    def session(self, name, fresh):
        found = self.sessions.setdefault(name, FakeSession())
        if fresh:
            found.requests = 0
        return found

    def chunk(self, session, row, task, seed, fresh, prefix=None, delay=0, end=0):
        {"die": lambda: os.kill(os.getpid(), 9), "hang": lambda: time.sleep(600), "oom": self.short, "shout": self.shout,
         "fork": lambda: subprocess.Popen(["sleep", "600"]), "fail": lambda: 1 / 0, "leak": self.leak, "terminal": lambda: os.killpg(0, signal.SIGINT), "noise": lambda: os.write(1, b"\xff\x1b[2J\n"),
         "garbage": lambda: os.write(CONTROL, b"garbage" * 9)}.get(task, lambda: None)()  # fmt: skip
        session.requests += 1
        return [row["state"][0] + row["picture"][0] + len(task), session.requests, 0 if prefix is None else prefix[0], delay, end, seed, 0, 0]

    def short(self):
        raise MemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    def leak(self):
        self.kept = b"x" * (200 << 20)

    def shout(self):
        for i in range(20000):
            print("line", i, "x" * 3000)


class FakeRows:
    def __init__(self, policy, count):
        memory = memoryview(mmap.mmap(MEMORY, 4096 * count))
        f = lambda at: memory[at : at + 32].cast("f")
        self.rows = [{"picture": memory[i * 4096 : i * 4096 + 72], "state": f(i * 4096 + 128), "prefix": f(i * 4096 + 192), "model": f(i * 4096 + 256), "robot": f(i * 4096 + 320)} for i in range(count)]


def fake_run(policy, rows, count, payload):
    at = 0
    for _ in range(count):
        slot, flags, name, _episode, seed, length, delay, end, size = ROW.unpack_from(payload, at)
        task = payload[at + ROW.size : at + ROW.size + size].decode()
        at += ROW.size + size
        row, fresh = rows.rows[slot], bool(flags & RESET)
        session = policy.own if flags & OWN else policy.session(name, fresh)
        values = policy.chunk(session, row, task, seed, fresh, row["prefix"] if flags & CONDITIONED else None, delay, end)
        for i, v in enumerate(values):
            row["robot"][i], row["model"][i] = v, v / 2


Rows, run = FakeRows, fake_run
signal.signal(signal.SIGINT, signal.SIG_IGN)
guard()
control = Control()
try:
    policy = FakePolicy(control.progress)
except Fault as error:
    control.send(FAILED, str(error).encode(), count=ERROR)
    os._exit(1)
time.sleep(float(os.environ.get("FAKE_LOAD", "0")))
serve(control, policy)
