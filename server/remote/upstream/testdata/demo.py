"""The demo policy in Python, for the policy servers of tests."""

import os

import numpy as np

JOINTS = 6


class Demo:
    """The demo policy: one camera of 120x160, six joints, without a prefix."""

    def __init__(self, folder):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.path.join(folder, "policy.onnx"), options)
        self.noise = np.random.default_rng(0)

    def infer(self, pictures, state, task):
        one = {"prefix_len": 0, "delay": 0, "prefix_end": 24, "rtc_mode": 0, "schedule": 0}
        inputs = {name: np.array([v], dtype=np.int64) for name, v in one.items()}
        inputs |= {"beta": np.ones(1, np.float32), "sigma_d": np.ones(1, np.float32)}
        inputs["image.top"] = np.ascontiguousarray(pictures[0])[None]
        inputs["state"] = np.asarray(state, dtype=np.float32)[None]
        inputs["noise"] = self.noise.standard_normal((1, 50, JOINTS), dtype=np.float32)
        inputs["prefix"] = np.zeros((1, 50, JOINTS), np.float32)
        known = {i.name for i in self.session.get_inputs()}
        return self.session.run(["chunk_robot"], {k: v for k, v in inputs.items() if k in known})[0][0]
