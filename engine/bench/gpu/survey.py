"""Survey of an interpreter: its packages and versions; imports none of them.

`python -m engine.bench.gpu.survey` prints it as one JSON line, for use by another interpreter.
"""

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import Field

from engine.bench.gpu.report import Value
from engine.environments import EnvironmentMissing
from engine.environments.bootstrap import statuses
from engine.hardware.devices import torch_build, visible
from engine.hardware.gpus import read_gpus
from engine.protocol.records.machine.hardware import Card

PACKAGES = (
    *("torch", "transformers", "peft", "safetensors", "tokenizers", "openai"),
    *("vllm", "unsloth", "unsloth_zoo", "bitsandbytes", "triton", "trl", "datasets"),
)
COMPILERS = ("cc", "gcc", "clang")


class Survey(Value):
    """Survey of one interpreter on this machine."""

    executable: str
    python: str
    """Version of the interpreter."""
    packages: dict[str, str]
    """Importable packages of PACKAGES."""
    cuda: str = ""
    """CUDA version that torch was built for; empty for a CPU build."""
    cards: tuple[Card, ...] = ()
    """GPUs that CUDA can see."""
    no_card: str = ""
    """Why no GPU can be used, in one sentence; empty if one can."""
    compiler: str = ""
    """C compiler; Triton uses it at run time."""
    headers: bool = False
    """Whether Python's header files are installed, which Triton needs as well."""
    environments: dict[str, str] = Field(default_factory=dict)
    """Installed environments and their Python."""

    @property
    def device(self) -> str:
        return self.cards[0].name if self.cards else ""


def survey() -> Survey:
    build = torch_build()
    found = read_gpus()
    shown = visible(found.cards, os.environ)
    reason = found.reason
    if found.cards and not shown:
        reason = "CUDA_VISIBLE_DEVICES hides every GPU."
    if shown and not (build and build.cuda):
        reason = f"torch {build.version if build else ''} was built for the CPU only."
    return Survey(
        executable=sys.executable,
        python=platform.python_version(),
        packages={name: known for name in PACKAGES if (known := version_of(name))},
        cuda=(build.cuda or "") if build else "",
        cards=shown,
        no_card=reason,
        compiler=next((path for name in COMPILERS if (path := shutil.which(name))), ""),
        headers=(Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
        environments=_environments(),
    )


def version_of(package: str) -> str:
    """Return the version of a package; empty if it cannot be imported."""
    if importlib.util.find_spec(package) is None:
        return ""
    try:
        return version(package.replace("_", "-"))
    except PackageNotFoundError:
        return "unknown version"


def _environments() -> dict[str, str]:
    """Return installed environments; empty outside of a source checkout."""
    try:
        return {one.name: one.python for one in statuses() if one.state == "ready"}
    except EnvironmentMissing:
        return {}


if __name__ == "__main__":
    sys.stdout.write(survey().model_dump_json() + "\n")
