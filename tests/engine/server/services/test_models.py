"""Compute of a server that a model's memory is forecast for."""

from engine.protocol.config.project import BackendConfig
from engine.protocol.requests.remote import FarCard, HostReport
from engine.server.services.models import cards_of_server

REPORT = HostReport(
    server="gpu-box", folder="", os="Linux", machine="x86_64", host="", libc="", cores=8,
    memory_bytes=64_000_000_000, free_bytes=0, filesystem="", shared=False,
    cards=[FarCard(name="NVIDIA L40S", memory_bytes=48_000_000_000, driver="")] * 4,
    python="", engine="engine-gpu", download_bytes=0, installed_bytes=0, engines=[],
)  # fmt: skip


def test_run_on_a_server_uses_as_many_gpus_as_its_settings_ask_for() -> None:
    assert len(cards_of_server(REPORT, BackendConfig())) == 1
    assert len(cards_of_server(REPORT, BackendConfig(processes=2, sampler="vllm"))) == 3
    assert (
        cards_of_server(REPORT.model_copy(update={"engine": "engine-cpu"}), BackendConfig()) == ()
    )
    assert cards_of_server(REPORT, BackendConfig())[0].total_bytes == 48_000_000_000
