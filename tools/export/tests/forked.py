"""Runs work in a fork of the test's process, which has torch and LeRobot loaded: a new process takes seconds to import them."""

import os
import sys
import traceback
from collections.abc import Callable


def run(work: Callable[[], int]) -> tuple[int, str]:
    """The exit status that work returns in the child, and the child's output."""
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    if not (child := os.fork()):
        os.close(read)
        os.dup2(write, 1)
        os.dup2(write, 2)
        sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)
        status = 70
        try:
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(write)
    with open(read, encoding="utf-8", errors="replace") as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text
