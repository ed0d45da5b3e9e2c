"""Lines of the event stream, as an engine or a server sends them (`protocol.events.decode`)."""

from pathlib import Path

from engine.protocol.events.run import decode

GOLDEN = Path(__file__).parents[2] / "engine" / "protocol" / "golden"
REFUSALS = (ValueError,)


def seeds() -> list[bytes]:
    """Return a sample line of the event stream for each kind of event."""
    lines = [line for file in sorted(GOLDEN.iterdir()) for line in file.read_bytes().splitlines()]
    return list({decode(line).kind: line for line in lines}.values())


def execute(data: bytes) -> None:
    decode(data)
