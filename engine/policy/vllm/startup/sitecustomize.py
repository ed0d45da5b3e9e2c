"""Start-up hook of every process of a vLLM server (its folder is on PYTHONPATH): the process exits
with the engine, even after a kill. Standard library only; Linux."""

import os
import select
import threading


def _leave_with(engine: int) -> None:
    select.select([engine], [], [])
    os._exit(1)


try:
    _engine = os.pidfd_open(int(os.environ["ATELIER_ENGINE_PID"]))
except ProcessLookupError:
    os._exit(1)
else:
    threading.Thread(target=_leave_with, args=(_engine,), daemon=True).start()
