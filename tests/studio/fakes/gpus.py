"""GPUs for the fake engine: used by a run and by other processes."""

from engine.protocol.records.machine.hardware import Card, CardProcess

GB = 1_000_000_000


def card(
    index: int = 0, total: int = 48 * GB, ours: int = 24 * GB, others: int = 0, **changes: object
) -> Card:
    """Return a working L40S."""
    processes = [CardProcess(pid=800, bytes=ours, name="python", ours=True)] if ours else []
    if others:
        processes.append(CardProcess(pid=4242, bytes=others, name="blender"))
    return Card(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA L40S",
        total_bytes=total,
        used_bytes=ours + others,
        free_bytes=total - ours - others,
        busy_percent=87,
        temperature_c=64,
        power_w=268.4,
        power_limit_w=350,
        capability=(8, 9),
        driver="580.65.06",
        cuda=(13, 0),
        processes=tuple(processes),
    ).model_copy(update=changes)
