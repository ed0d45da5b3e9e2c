"""Activity of clients: an engine without work and without clients ends after a while."""

import time


class Activity:
    """Time of the last request, or of the last line that was sent to a client."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def touch(self) -> None:
        self._last = time.monotonic()

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self._last
