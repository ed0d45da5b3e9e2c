"""Fork server of torch processes: `python -m engine.policy.torch.preloaded REQUESTS LIFE`.

Imports torch, transformers and PEFT once, then runs the modules of policies and exports in forked
processes (engine/runtime/preloaded.py).
"""

import gc
import socket
import sys

from engine.runtime.life_pipe import end_with_parent
from engine.runtime.preloaded import freeze, serve_forks


def main() -> None:
    end_with_parent()  # the imports take seconds, in which nothing watches the pipe
    requests, life = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    prepare()
    serve_forks(requests, life, "torch")


def prepare() -> None:
    """Prepare the process for forking: import torch, transformers, PEFT and the policy modules, and
    warm the caches that loading a model uses. Raises SystemExit if an import has started a
    thread."""
    gc.disable()  # collections take a fifth of the time of these imports
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    import engine.policy.torch.serve  # noqa: F401

    get_checkpoint_conversion_mapping("llama")  # compiles 600 patterns for all families
    freeze()


if __name__ == "__main__":
    main()
