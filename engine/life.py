"""The life pipe, from a child's end. Standard library only: any environment can import it."""

import os
import threading


def exit_with_engine(descriptor: int) -> None:
    """Watch the read end in a thread: end of file means the engine is gone, and so are we."""
    threading.Thread(target=_wait, args=(descriptor,), daemon=True).start()


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)
    os._exit(0)
