"""The policy type `lean`: observations go to lean-server, and its chunks of actions come back."""

from __future__ import annotations

import atexit
import logging
import math
import re
import secrets
import socket
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION, OBS_STATE
from torch import Tensor

from .configuration_lean import LeanConfig
from .robot import IMAGES, Robot, differences, of_rollout

try:
    import lean_client
except ModuleNotFoundError as error:
    if error.name != "lean_client":
        raise
    raise ModuleNotFoundError("the policy type lean needs lean_client: pip install ./tools/lean_client") from error

logger = logging.getLogger(__name__)

MAX_NAMES, MAX_ROWS = 256, 4096  # docs/wire.md, "Limits"
LEAST_PATIENCE = 1.0  # s until a lost observation is repeated; a slow policy gets three times its longest chunk

Observation = tuple[np.ndarray, dict[str, np.ndarray]]


class LeanPolicy(PreTrainedPolicy):
    """A session with lean-server, opened before the first motion and again when the server was away.

    Raises lean_client.Refused where the server or the robot does not fit, and TimeoutError where no chunk comes.
    """

    config_class = LeanConfig
    name = "lean"

    def __init__(self, config: LeanConfig, **kwargs: Any) -> None:
        super().__init__(config)
        if not config.server:
            raise ValueError("the policy type lean needs lean-server's address: --policy.server=tcp/HOST:7447")
        self._status = _plausible(lean_client.status(config.server, **self._link()))
        self._rows = int(self._status["chunk_size"])
        if config.n_action_steps > self._rows:
            raise ValueError(f"--policy.n_action_steps={config.n_action_steps}: a chunk has {self._rows} actions")
        self._rename = dict(config.rename_map)
        self._adopt_features()
        host = re.sub(r"[^A-Za-z0-9_.-]+", "-", socket.gethostname()).strip(".-") or "lerobot"
        self._name, self._instance = config.id or f"{host}-{secrets.token_hex(2)}", secrets.token_hex(8)
        self._client: lean_client.Client | None = None
        self._robot, self._epoch, self._lock = Robot(), 0, threading.RLock()
        self._queue: deque[Tensor] = deque()
        self._past: deque[Observation] = deque(maxlen=max(0, self._steps() - 1))
        atexit.register(self.close)

    @classmethod
    def from_pretrained(
        cls, pretrained_name_or_path: str | Path | None = None, *, config: LeanConfig | None = None, **kwargs: Any
    ) -> LeanPolicy:
        """Builds the policy from its settings, with a folder or without one: there are no weights to load."""
        if config is None:
            config = LeanConfig.from_pretrained(pretrained_name_or_path, **kwargs)
        return cls(config).eval()

    def _link(self, timeout: float = math.inf) -> dict[str, Any]:
        c = self.config
        return {"service": c.service, "config": c.zenoh_config, "timeout": min(timeout, c.timeout)}

    def _steps(self) -> int:
        return int(self._status.get("observation_steps") or 1)

    def _adopt_features(self) -> None:
        """Compares features of an environment or a folder with the server's, then takes the server's."""
        config, actions = self.config, len(self._status["action_names"])
        found = []
        if (have := config.action_feature) is not None and tuple(have.shape) != (actions,):
            found.append(f"actions: {have.shape[0]} here, {actions} of the policy: {self._status['action_names']}")
        if (have := config.robot_state_feature) is not None and tuple(have.shape) != (self._status["state_dim"],):
            found.append(f"state: {have.shape[0]} values here, {self._status['state_dim']} of the policy")
        if config.image_features:
            cameras = dict.fromkeys(config.image_features, (0, 0))
            found += differences(Robot(cameras=cameras), self._status, self._rename)
        self._refuse(found)
        back = {theirs: ours for ours, theirs in self._rename.items()}
        shapes = self._status.get("camera_shapes") or {}
        config.input_features = {OBS_STATE: PolicyFeature(FeatureType.STATE, (int(self._status["state_dim"]),))}
        for key in self._status["expected_cameras"]:
            height, width, channels = shapes.get(key) or (0, 0, 3)
            config.input_features[back.get(key, key)] = PolicyFeature(FeatureType.VISUAL, (channels, height, width))
        config.output_features = {ACTION: PolicyFeature(FeatureType.ACTION, (actions,))}

    def _refuse(self, found: list[str]) -> None:
        if found:
            where = f"the robot does not fit the policy at {self.config.server}"
            raise lean_client.Refused(f"{where}:\n  " + "\n  ".join(found))

    def get_optim_params(self) -> dict:
        return {}

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict | None]:
        raise NotImplementedError("the policy type lean is not trained: train the policy that lean-server serves")

    def supports_rtc(self) -> bool:
        """Returns whether the served policy conditions a chunk on the actions that run meanwhile."""
        return bool(self._status.get("supports_rtc"))

    def reset(self) -> None:
        """Begins an episode. In lerobot-rollout the first one compares robot and policy, and opens the session."""
        with self._lock:
            self._queue.clear()
            self._past.clear()
            if self._client is not None:
                try:
                    self._client.reset()
                except lean_client.Refused as error:
                    if not error.retry:
                        raise
                    self._leave()  # the next observation opens a session, and with it an episode
                return
            if (rollout := of_rollout()) is None:
                return
            self._robot, rename = rollout
            self._rename = {**rename, **self._rename}
            self._refuse(differences(self._robot, self._status, self._rename))
            sizes = {self._rename.get(key, key): size for key, size in self._robot.cameras.items()}
            self._open({key: sizes[key] for key in self._status["expected_cameras"]})

    def _open(self, cameras: dict[str, tuple[int, int]], timeout: float = math.inf) -> None:
        self._epoch += 1
        names = self._robot.action_names
        if not names:
            logger.warning("LeRobot names no joints here: they must be %s, in this order", self._status["action_names"])
        self._client = lean_client.Client(
            self.config.server,
            action_names=names or self._status["action_names"],
            action_units=self._robot.action_units,
            cameras={key.removeprefix(IMAGES): size for key, size in cameras.items()},
            name=self._name,
            fps=self._robot.fps,
            rtc=self.supports_rtc(),
            robot_type=self._robot.type,
            observation_steps=self._steps(),
            instance=self._instance,
            epoch=self._epoch,
            **self._link(timeout),
        )
        for warning in self._client.ack.get("warnings") or []:
            logger.warning("lean-server: %s", warning)
        logger.info("session %s at %s", self._name, self.config.server)

    def _leave(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """Ends the session; the program's end does it, too."""
        self._leave()

    def _observation(self, batch: dict[str, Any]) -> Observation:
        """Returns state and pictures, by the policy's names without observation.images, of a batch of one robot."""
        state = batch.get(OBS_STATE)
        if state is None or state.ndim != 2 or state.shape[0] != 1:
            got = "none" if state is None else tuple(state.shape)
            raise ValueError(f"{OBS_STATE}: got {got}, want one robot's [1, joints] (--eval.batch_size=1)")
        images = {}
        for key in self._status["expected_cameras"]:
            keys = [key, *(ours for ours, theirs in self._rename.items() if theirs == key)]
            picture = next((batch[k] for k in keys if k in batch), None)
            if picture is None:
                have = sorted(k for k in batch if "image" in k)
                raise lean_client.Refused(f"no picture {key} among {have}: --policy.rename_map names it")
            images[key.removeprefix(IMAGES)] = _picture(key, picture)
        return state[0].to("cpu", torch.float32).numpy(), images

    @torch.no_grad()
    def predict_action_chunk(
        self,
        batch: dict[str, Any],
        inference_delay: int = 0,
        prev_chunk_left_over: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Returns actions in robot units, float32 [1, chunk, joints] on the CPU.

        prev_chunk_left_over [rows, joints] are the actions that run meanwhile, the next one first, and
        inference_delay is how many of them will have run when the chunk comes.
        """
        with self._lock:
            return self._chunk(batch, self._observation(batch), int(inference_delay or 0), prev_chunk_left_over)

    @torch.no_grad()
    def select_action(self, batch: dict[str, Any], **kwargs: Any) -> Tensor:
        """Returns the next action, float32 [1, joints] in robot units; asks for a chunk after the last one."""
        with self._lock:
            observation = self._observation(batch) if self._past.maxlen or not self._queue else None
            if not self._queue:
                chunk = self._chunk(batch, observation, 0, None)
                self._queue.extend(chunk[0, : self.config.n_action_steps or self._rows].unsqueeze(1))
            if self._past.maxlen:
                self._past.append(observation)
            return self._queue.popleft()

    def _chunk(self, batch: dict[str, Any], seen: Observation, delay: int, left_over: Tensor | None) -> Tensor:
        state, images = seen
        past = list(self._past)
        if past:  # as LeRobot's policies do, the first observation is repeated
            past = [past[0]] * (self._past.maxlen - len(past)) + past
        task = batch.get("task") or ""
        task = task if isinstance(task, str) else str(task[0])
        deadline, reason = time.monotonic() + self.config.timeout, "no answer"
        while (left := deadline - time.monotonic()) > 0:
            try:
                if self._client is None:
                    self._open({IMAGES + name: p.shape[:2] for name, p in images.items()}, left)
                prefix = _prefix(left_over) if self.supports_rtc() else None
                self._client.observe(state, images, task=task, prefix=prefix, delay=delay, past=past)
                chunk = self._client.chunk(min(self._patience(), left))
                if chunk is not None:
                    return torch.from_numpy(chunk).unsqueeze(0)
                reason = self._client.notice or "no answer"
            except lean_client.Refused as error:
                if not error.retry:
                    raise
                reason = str(error)
                if error.code in ("late", "unavailable"):  # the session stays
                    time.sleep(0.1 if error.code == "unavailable" else 0)
                    continue
            logger.warning("no chunk from %s yet: %s", self.config.server, reason)
            self._leave()
            time.sleep(0.1)
        wait = f"no chunk from {self.config.server} within {self.config.timeout:g} s (--policy.timeout)"
        raise TimeoutError(f"{wait}: {reason}")

    def _patience(self) -> float:
        ack = self._client.ack
        longest = float(ack.get("inference_ms_p99") or 0) + float(ack.get("queue_wait_ms") or 0)
        return max(LEAST_PATIENCE, 3e-3 * longest) if math.isfinite(longest) else self.config.timeout


def _plausible(status: dict) -> dict:
    """Returns a Status whose names and sizes a policy can have; raises Refused for another one."""
    names, cameras = status.get("action_names"), status.get("expected_cameras") or []
    if not _texts(names) or not names or not _texts(cameras):
        raise lean_client.Refused("the server names no actions, or too many: is it a lean-server?")
    rows, size = status.get("chunk_size"), status.get("state_dim")
    if not isinstance(rows, int) or not 0 < rows <= MAX_ROWS or not isinstance(size, int) or size > MAX_NAMES:
        raise lean_client.Refused(f"the server's chunks have {rows} actions and its states {size} values")
    return {**status, "expected_cameras": cameras}


def _texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_NAMES and all(isinstance(text, str) for text in value)


def _picture(key: str, picture: Tensor) -> np.ndarray:
    """Returns [height, width, 3] of uint8 from LeRobot's [1, 3, height, width], uint8 or 0 to 1."""
    if picture.ndim != 4 or picture.shape[:2] != (1, 3):
        raise ValueError(f"{key}: got {tuple(picture.shape)}, want [1, 3, height, width]")
    if picture.is_floating_point():
        if not (picture.min() >= 0 and picture.max() <= 1):  # also where a value is NaN
            raise ValueError(f"{key}: values from {picture.min():g} to {picture.max():g}, want 0 to 1")
        picture = (picture * 255).round().to(torch.uint8)
    return np.ascontiguousarray(picture[0].permute(1, 2, 0).cpu().numpy())


def _prefix(left_over: Tensor | None) -> np.ndarray | None:
    """Returns the rows that will run: LeRobot's RTC fills a short rest of a chunk with zeros, which are no actions."""
    if left_over is None:
        return None
    rows = left_over.reshape(-1, left_over.shape[-1]).to("cpu", torch.float32).numpy()
    used = np.flatnonzero(rows.any(axis=1))
    return rows[: used[-1] + 1] if len(used) else None
