"""Log files that programs write to by themselves, kept to a length."""

from pathlib import Path

MOST_BYTES = 64 * 2**20
KEPT_BYTES = 2**20
LOOK_S = 1.0


def shorten(log: Path, most: int = MOST_BYTES, kept: int = KEPT_BYTES) -> bool:
    """Leave the end of a log that has grown too long; whether it had. Programs that have opened it
    to append go on behind that."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return False
    if size <= most:
        return False
    with log.open("r+b") as file:
        file.seek(-kept, 2)
        end = file.read()
        file.seek(0)
        file.write(f"[{(size - kept) / 2**20:.0f} MB left out]\n".encode() + end)
        file.truncate()
    return True
