#!/usr/bin/env python3
"""Compile packaging/locks from pyproject.toml with uv: one resolution, hashes, no host names.

usage: python3 packaging/lock.py [--torch-wheel FILE ...]

All sets but those of ALONE come from one resolution, so they fit into one environment. The NVIDIA
libraries that a CUDA build of torch wants are left out: bootstrap.py brings them where such a build
arrives. torch has a lock of its own: in hash mode pip passes over a wheel from a local folder, so
bootstrap.py checks its hash itself. With --torch-wheel such a wheel is accepted besides the one of
the index.
"""

import argparse
import hashlib
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "packaging" / "locks"
SETS = {
    "engine-cpu": ["engine", "policy"],
    "studio": ["studio"],
    "test": ["test"],
    "bench": ["bench"],
}
UNRESOLVED = {"bench": "openpipe-art==0.5.18"}
"""Taken without what they depend on: only single functions of theirs are called."""
BESIDE = {"bench": "engine-cpu"}
"""Sets that lie on top of another one's environment, and bring only what is not there."""
ALONE = {
    "judge": "litellm==1.106.2",
    "llamacpp": "xllamacpp==2026.10.11549",
    "parquet": "pyarrow==26.0.1",
}
"""Environments that share nothing with ours: what holds API keys imports nothing else, and what few
ever need is installed by those alone."""
LEFT_OUT = ("nvidia-", "cuda-", "triton==")
PIP = "pip==26.3"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--torch-wheel", type=Path, action="append", default=[])
    extra = [sha256(wheel) for wheel in parser.parse_args().torch_wheel]
    LOCKS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        everything = Path(scratch) / "all.txt"
        compile_lock(["pyproject.toml", "--all-extras"], everything)
        for name, extras in SETS.items():
            chosen = [argument for e in extras for argument in ("--extra", e)]
            lock = LOCKS / f"{name}.txt"
            project = ["pyproject.toml", *chosen, "--constraint", str(everything)]
            compile_lock(project, lock)
            blocks = split(lock.read_text())
            if name in UNRESOLVED:
                compile_lock(["-", "--no-deps"], lock, UNRESOLVED[name])
                blocks += split(lock.read_text())
            if name in BESIDE:
                there = split((LOCKS / f"{BESIDE[name]}.txt").read_text())
                names = {block.split("==")[0] for block in there}
                blocks = [block for block in blocks if block.split("==")[0] not in names]
            lock.write_text("".join(b for b in blocks if not b.startswith((*LEFT_OUT, "torch=="))))
            torch = next((b for b in blocks if b.startswith("torch==")), None)
            if torch:
                (LOCKS / "torch.txt").write_text(with_hashes(torch, extra))
        compile_lock(["-"], LOCKS / "pip.txt", PIP)
        for name, requirement in ALONE.items():
            compile_lock(["-"], LOCKS / f"{name}.txt", requirement)


def compile_lock(arguments: list[str], output: Path, requirements: str = "") -> None:
    """`requirements` are those of the argument `-`."""
    options = ["--universal", "--python-version=3.11", "--generate-hashes", "--no-emit-index-url"]
    options += ["--no-header", "--no-annotate", "--quiet", f"--output-file={output}"]
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
