"""GPU checks that fail in every possible way, run by `test_gpu_check`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.bench.gpu.report import Job, Outcome
from engine.protocol.problems import PolicyError


def dies(job: Job, say: Callable[[str], None]) -> Outcome:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def breaks(job: Job, say: Callable[[str], None]) -> Outcome:
    raise ValueError("seven is no colour\nand more lines")


def refuses(job: Job, say: Callable[[str], None]) -> Outcome:
    raise PolicyError.of("policy.out_of_memory", "Memory ran out.", "Take less.", detail="where")


def hangs(job: Job, say: Callable[[str], None]) -> Outcome:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    Path(job.arguments["pid"]).write_text(str(child.pid))
    time.sleep(600)
    raise AssertionError


def works(job: Job, say: Callable[[str], None]) -> Outcome:
    print("libraries print")
    say("at it")
    return Outcome(state="passed", words="It works.", figures={"answer": 42.0})
