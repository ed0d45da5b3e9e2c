"""What environments there are, what each is for, and what this machine lacks for it."""

from dataclasses import dataclass

from engine.environments.door import Status, statuses
from engine.launch.choice import read_choice
from engine.launch.interpreter import running_engine
from engine.protocol.environments import EngineChoice, EnvironmentList, EnvironmentView
from engine.protocol.problems import LaunchError, Problem

OLDEST_DRIVER = 580
"""NVIDIA's first driver for CUDA 13, which the GPU engine's torch is built for
(docs.nvidia.com/deploy/cuda-compatibility)."""


@dataclass(frozen=True)
class Words:
    """How an environment is spoken of."""

    title: str
    purpose: str
    needs: str = "any machine that Atelier runs on"
    card: bool = False
    """Of use only with an NVIDIA card."""


CPU = "Linux on x86_64, Python 3.11"
WORDS = {
    "engine-gpu": Words(
        "GPU engine",
        "A whole engine with torch for CUDA, vLLM to sample and Unsloth to train.",
        "Linux on x86_64, an NVIDIA card and its driver",
        card=True,
    ),
    "vllm-cpu": Words("vLLM on the processor", "Samples with vLLM, without a card.", CPU),
    "unsloth-cpu": Words("Unsloth on the processor", "Trains with Unsloth, without a card.", CPU),
    "judge": Words("Judge", "Speaks to the providers of judges, by litellm."),
    "parquet": Words("Parquet", "Reads attempts that ART has kept in Parquet files."),
    "llamacpp": Words("llama.cpp", "Reads exported GGUF files, as Ollama does."),
    "bench": Words("TRL", "The other side of the benchmark."),
}
"""In the order in which they are shown."""


def environments() -> EnvironmentList:
    """Everything, as it is on the disk. Raises EnvironmentMissing without a checkout."""
    found = {status.name: status for status in statuses()}
    card = _lack_of_card()
    problem: Problem | None = None
    choice = EngineChoice()
    try:
        choice = read_choice()
    except LaunchError as error:
        problem = error.problem
    views = [_view(found[name], words, card) for name, words in WORDS.items() if name in found]
    return EnvironmentList(
        environments=views, choice=choice, running=running_engine(), problem=problem
    )


def _view(status: Status, words: Words, card: str) -> EnvironmentView:
    kept = status.model_dump(exclude={"homes", "busy"})
    return EnvironmentView(
        **kept,
        title=words.title,
        purpose=words.purpose,
        needs=words.needs,
        lacks=card if words.card else "",
        elsewhere=status.busy,
    )


def _lack_of_card() -> str:
    """What stands between this machine and CUDA, in a sentence; empty where nothing does."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "No NVIDIA card is found here: it can be installed, but is of use only with a card."
    try:
        if not pynvml.nvmlDeviceGetCount():
            return "The NVIDIA driver finds no card: it is of use only with one."
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        return f"The NVIDIA driver does not answer ({error})."
    finally:
        pynvml.nvmlShutdown()
    if int(driver.split(".")[0]) < OLDEST_DRIVER:
        return f"The NVIDIA driver is {driver}; CUDA 13 needs {OLDEST_DRIVER} or newer."
    return ""
