"""Python runs this file in every process of a vLLM server, for its folder is on PYTHONPATH: none of
them outlives the engine, however either of them is killed. Standard library only; Linux.
"""

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
