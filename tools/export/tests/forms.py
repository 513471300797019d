"""Runs the graphs of any form as the server does."""

from pathlib import Path

import numpy as np
import onnxruntime

from edgert_export import sampler

OUTPUTS = sampler.OUTPUTS


def session(model: object, entries: dict[str, str]) -> onnxruntime.InferenceSession:
    """A session of a graph in memory or in a file. entries: the session's configuration."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class Runner:
    """models: graphs or files by their names in a bundle."""

    def __init__(self, models: dict[str, object], steps: int, **entries: str) -> None:
        self.sessions, self.steps = {name: session(model, entries) for name, model in models.items()}, steps

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if sampler.POLICY in self.sessions:
            return dict(zip(OUTPUTS, self.sessions[sampler.POLICY].run(OUTPUTS, inputs), strict=True))
        first, step = self.sessions[sampler.PREFIX], self.sessions[sampler.STEP]
        carried = dict(zip([o.name for o in first.get_outputs()], first.run(None, inputs), strict=True))
        wanted = {i.name for i in step.get_inputs()}
        chunk = []
        for k in range(self.steps):
            given = {name: value for name, value in carried.items() if name in wanted}
            carried["x"], *chunk = step.run(["x_next", *OUTPUTS], given | {"k": np.array(k), "state": inputs["state"]})
        return dict(zip(OUTPUTS, chunk, strict=True))
