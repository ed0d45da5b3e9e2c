"""Converter of llama.cpp, if installed on this machine; it supports more architectures."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from engine.protocol.problems import ModelError

SCRIPT = "convert_hf_to_gguf.py"
VARIABLE = "ATELIER_LLAMA_CPP"
TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "q8_0": "q8_0"}


def find_converter() -> Path | None:
    """Path of llama.cpp's converter, in ATELIER_LLAMA_CPP or on PATH; None if missing."""
    if named := os.environ.get(VARIABLE):
        script = Path(named).expanduser() / SCRIPT
        return script if script.is_file() else None
    found = shutil.which(SCRIPT)
    return Path(found) if found else None


def convert(script: Path, merged: Path, file: Path, dtype: str) -> None:
    """Convert a merged model to GGUF by llama.cpp's `script`. Raises ModelError on failure."""
    command = [sys.executable, str(script), str(merged), "--outfile", str(file)]
    done = subprocess.run(
        [*command, "--outtype", TYPES[dtype]],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode or not file.is_file():
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError.of(
            "export.converter_failed",
            f"llama.cpp's converter failed: {last[:300]}",
            "Update the llama.cpp checkout at ATELIER_LLAMA_CPP; its converter runs in Atelier's "
            "Python.",
            detail=done.stderr[-4000:],
        )
