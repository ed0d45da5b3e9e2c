"""Catalogue of environments: their purpose, and what this machine lacks for each."""

from dataclasses import dataclass

from engine.environments.bootstrap import KEPT, Status, statuses
from engine.launcher.interpreters import read_choice, running_engine
from engine.protocol.problems import LaunchError, Problem
from engine.protocol.records.machine.environments import (
    AgentPackages,
    EngineChoice,
    EnvironmentList,
    EnvironmentView,
)


@dataclass(frozen=True)
class Words:
    """Display texts of an environment."""

    title: str
    purpose: str
    needs: str = "any machine that runs Atelier"
    card: bool = False
    """Whether the environment needs an NVIDIA GPU."""


CPU = "Linux on x86_64, Python 3.11"
UNSLOTH = "Unsloth's wheels declare Apache-2.0 and LGPL-3.0, and also ship files under AGPL-3.0."
WORDS = {
    "engine-gpu": Words(
        "GPU engine",
        f"Engine with torch for CUDA, vLLM for sampling and Unsloth for training. {UNSLOTH}",
        "Linux on x86_64, an NVIDIA GPU and its driver",
        card=True,
    ),
    "vllm-cpu": Words("vLLM on the CPU", "Sampling with vLLM, without a GPU.", CPU),
    "unsloth-cpu": Words(
        "Unsloth on the CPU", f"Training with Unsloth, without a GPU. {UNSLOTH}", CPU
    ),
    "tinker": Words("Tinker", "Samples and trains on a cluster through Tinker's API."),
    "tinker-json": Words(
        "Tinker (JSON)", "Samples and trains on a cluster of SkyRL 0.3 through Tinker's API."
    ),
    "skyrl-cpu": Words("SkyRL on the CPU", "Cluster server on this machine, without a GPU.", CPU),
    "skyrl-gpu": Words(
        "SkyRL",
        "Cluster server on this machine, with JAX for CUDA.",
        "Linux on x86_64, an NVIDIA GPU and its driver",
        card=True,
    ),
    "judge": Words("Judge", "Calls API models, such as judges, through litellm."),
    "parquet": Words("Parquet", "Reads trajectories that ART stored as Parquet files."),
    "llamacpp": Words(
        "llama.cpp", "Runs exported GGUF files with llama.cpp, which Ollama uses too."
    ),
    "wandb": Words("W&B", "Sends metrics to Weights & Biases, or writes W&B offline files."),
    "mlflow": Words("MLflow", "Sends metrics to an MLflow server."),
    "trackio": Words("trackio", "Writes metrics into trackio's database on this machine."),
    "tensorboard": Words("TensorBoard", "Writes TensorBoard event files."),
    "otel": Words(
        "OpenTelemetry", "Sends trajectories as traces to Langfuse or another collector."
    ),
    "art": Words(
        "ART", "OpenPipe's ART (without its trainers), for scripts that train with Atelier."
    ),
    "bench": Words("TRL", "TRL's GRPOTrainer, which the benchmark compares with Atelier."),
}
"""Display texts by environment, in display order."""


def environments(card_lacks: str = "") -> EnvironmentList:
    """State of all environments; `card_lacks` says why CUDA cannot be used here (empty: it can).
    Raises EnvironmentMissing unless Atelier runs from a source checkout."""
    found = {status.name: status for status in statuses()}
    problem: Problem | None = None
    choice = EngineChoice()
    try:
        choice = read_choice()
    except LaunchError as error:
        problem = error.problem
    views = [
        _view(found[name], words, card_lacks) for name, words in WORDS.items() if name in found
    ]
    agents = [
        AgentPackages.model_validate(status.model_dump())
        for name, status in found.items()
        if name.startswith(KEPT)
    ]
    return EnvironmentList(
        environments=views, agents=agents, choice=choice, running=running_engine(), problem=problem
    )


def _view(status: Status, words: Words, card: str) -> EnvironmentView:
    kept = status.model_dump(exclude={"homes", "busy", "requirements", "wanted"})
    return EnvironmentView(
        **kept,
        title=words.title,
        purpose=words.purpose,
        needs=words.needs,
        lacks=card if words.card else "",
        elsewhere=status.busy,
    )
