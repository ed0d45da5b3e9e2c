"""Availability of backends for a project's [backend], equal to the check at the start of a run."""

import importlib.util
import os
from collections.abc import Mapping, Sequence

from engine.environments.bootstrap import EnvironmentMissing, Status, statuses
from engine.hardware.devices import computes_on_cards, visible
from engine.hardware.gpus import read_gpus
from engine.protocol.records.machine.backends import BackendFacts, Provision

BESIDE = {"vllm": "vllm-cpu", "unsloth": "unsloth-cpu"}
"""Optional modules and the environments that provide them for the CPU."""
TITLES = {"vllm": "vLLM", "unsloth": "Unsloth"}


def backend_facts() -> BackendFacts:
    """Query which backends for sampling and training can be used; takes about a second."""
    shown = len(visible(read_gpus().cards, os.environ))
    cards = shown if computes_on_cards() else 0
    present = {name for name in BESIDE if importlib.util.find_spec(name)}
    try:
        beside: Sequence[Status] = statuses() if not cards and present != set(BESIDE) else ()
        why = ""
    except EnvironmentMissing as missing:
        beside, why = (), str(missing.problem.message)
    found = {status.name: status for status in beside}
    return BackendFacts(
        cards=cards,
        idle_cards=shown - cards,
        vllm=provision("vllm", "vllm" in present, cards, found, why),
        unsloth=provision("unsloth", "unsloth" in present, cards, found, why),
    )


def provision(
    name: str, present: bool, cards: int, beside: Mapping[str, Status], why: str = ""
) -> Provision:
    """State of backend `name`: ready if the engine itself has it (`present`), missing, or (without
    GPUs, `cards` 0) as its own environment in `beside`, which may be installed at first use. `why`
    is the reason reported if `beside` lacks that environment."""
    if present:
        return Provision(state="ready")
    if cards:
        return Provision(state="missing", why=f"This engine has no {TITLES[name]}.")
    status = beside.get(BESIDE[name])
    if status is None:
        return Provision(state="missing", why=why or f"This engine has no {TITLES[name]}.")
    if status.state == "ready":
        return Provision(state="ready")
    if status.unfit:
        return Provision(state="missing", why=status.unfit)
    return Provision(state="comes", bytes=status.bytes, download_bytes=status.download_bytes)
