#!/usr/bin/env python3
"""Compile packaging/locks from pyproject.toml with uv: one resolution, hashes, no host names.

usage: python3 packaging/lock.py [--torch-wheel FILE ...]

All sets come from one resolution, so they fit into one environment. The NVIDIA libraries that a
CUDA build of torch wants are left out: bootstrap.py brings them where such a build arrives. torch
has a lock of its own: in hash mode pip passes over a wheel from a local folder, so bootstrap.py
checks its hash itself. With --torch-wheel such a wheel is accepted besides the index's.
"""

import argparse
import hashlib
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "packaging" / "locks"
SETS = {"engine-cpu": ["engine", "policy"], "studio": ["studio"], "test": ["test"]}
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
            compile_lock(["pyproject.toml", *chosen, "--constraint", str(everything)], lock)
            blocks = split(lock.read_text())
            lock.write_text("".join(b for b in blocks if not b.startswith((*LEFT_OUT, "torch=="))))
            torch = next((b for b in blocks if b.startswith("torch==")), None)
            if torch:
                (LOCKS / "torch.txt").write_text(with_hashes(torch, extra))
        pip = Path(scratch) / "pip.in"
        pip.write_text(PIP + "\n")
        compile_lock([str(pip)], LOCKS / "pip.txt")


def compile_lock(arguments: list[str], output: Path) -> None:
    options = [
        "--universal",
        "--python-version",
        "3.11",
        "--generate-hashes",
        "--no-emit-index-url",
    ]
    subprocess.run(
        [
            "uv",
            "pip",
            "compile",
            *arguments,
            *options,
            "--no-header",
            "--no-annotate",
            "--quiet",
            "--output-file",
            str(output),
        ],
        cwd=ROOT,
        check=True,
    )


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
