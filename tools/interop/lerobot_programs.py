"""LeRobot's own programs with the demo policy and a simulated arm, in a Python with LeRobot and grpcio.

    lerobot_programs.py checkpoint FOLDER          a checkpoint of the plugin's policy type, post
    lerobot_programs.py policy_server PORT         the released policy_server, whose list of policies has post, too
    lerobot_programs.py client ADDRESS SECONDS TYPE FOLDER   the released robot_client; statistics of its queue as JSON
"""

import json
import os
import pathlib
import sys
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in
                ("tools/lerobot_policy_lean/tests/lerobot_robot_leanfake", "server/remote/upstream/testdata")]
import lerobot_policy_post  # noqa: E402, F401: registers the type


def checkpoint(folder):
    from lerobot.policies.factory import make_pre_post_processors  # noqa: F401: registers the steps
    from lerobot.processor import (AddBatchDimensionProcessorStep, DeviceProcessorStep, PolicyProcessorPipeline,
                                   RenameObservationsProcessorStep)
    from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action

    lerobot_policy_post.PostConfig(bundle=str(ROOT / "testdata/demo/bundle")).save_pretrained(folder)
    before = [RenameObservationsProcessorStep(rename_map={}), AddBatchDimensionProcessorStep(), DeviceProcessorStep("cpu")]
    PolicyProcessorPipeline(steps=before, name="policy_preprocessor").save_pretrained(folder)
    PolicyProcessorPipeline(steps=[DeviceProcessorStep("cpu")], name="policy_postprocessor",
                            to_transition=policy_action_to_transition,
                            to_output=transition_to_policy_action).save_pretrained(folder)


def policy_server(port):
    from lerobot.async_inference import policy_server as released
    from lerobot.async_inference.configs import PolicyServerConfig

    released.SUPPORTED_POLICIES.append("post")
    released.serve(PolicyServerConfig(host="127.0.0.1", port=int(port), fps=60))


def client(address, seconds, kind, folder):
    import lerobot_robot_leanfake as fake
    from lerobot.async_inference.configs import RobotClientConfig
    from lerobot.async_inference.robot_client import RobotClient

    raised = []
    threading.excepthook = lambda e: raised.append(repr(e.exc_value))
    robot = RobotClient(RobotClientConfig(
        robot=fake.LeanFakeConfig(), server_address=address, policy_type=kind, pretrained_name_or_path=folder,
        policy_device="cpu", actions_per_chunk=50, chunk_size_threshold=0.5, fps=60, task="around the post"))
    logged = []
    robot.logger.error = lambda text, *_: logged.append(text)
    began = time.monotonic()
    if robot.start():
        receiver = threading.Thread(target=robot.receive_actions, daemon=True)
        receiver.start()
        threading.Timer(float(seconds), robot.shutdown_event.set).start()
        try:
            robot.control_loop(task="around the post")
        except Exception:
            raised.append(traceback.format_exc())
        receiver.join(5)
    # The queue is empty until the first chunk, and the last answers come while the client ends.
    sizes = robot.action_queue_size
    first = next((i for i, n in enumerate(sizes) if n), len(sizes))
    sizes = sizes[first:] or [0]
    print(json.dumps({
        "seconds": round(time.monotonic() - began, 1), "exceptions": raised, "errors": logged[:3], "actions": len(sizes),
        "queue_min": min(sizes), "queue_mean": round(sum(sizes) / len(sizes), 1), "empty": sum(n == 0 for n in sizes),
    }), flush=True)
    os._exit(0)  # the receiver may be inside a call for as long as the server likes


if __name__ == "__main__":
    {"checkpoint": checkpoint, "policy_server": policy_server, "client": client}[sys.argv[1]](*sys.argv[2:])
