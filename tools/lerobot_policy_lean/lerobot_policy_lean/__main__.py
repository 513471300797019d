"""Prints the policy of a server, and writes a folder for programs of LeRobot that take only --policy.path."""

from __future__ import annotations

import argparse
from pathlib import Path

import lean_client

from .configuration_lean import LeanConfig
from .modeling_lean import LeanPolicy
from .processor_lean import make_lean_pre_post_processors


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lerobot_policy_lean", description=__doc__)
    parser.add_argument("server", help="lean-server's address, tcp/HOST:7447")
    parser.add_argument("--service", default="", help="one of several services at this address")
    parser.add_argument("--out", type=Path, help="folder to write")
    args = parser.parse_args()
    try:
        policy = LeanPolicy(LeanConfig(server=args.server, service=args.service))
    except lean_client.Refused as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    status = policy._status
    print(f"{status['policy_type']} {status['model_repo']}, {status['trained_fps']:g} Hz, "
          f"chunks of {status['chunk_size']} actions, RTC {'yes' if policy.supports_rtc() else 'no'}")
    print("actions", ", ".join(status["action_names"]))
    print("cameras", ", ".join(status["expected_cameras"]))
    if args.out is None:
        return
    policy.save_pretrained(args.out)
    for processor in make_lean_pre_post_processors(policy.config):
        processor.save_pretrained(args.out)
    print(f"wrote {args.out}: --policy.path={args.out}")


if __name__ == "__main__":
    main()
