"""Python sources of packages and folders, which are read without being run."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

from engine.protocol.problems import ConfigError
from engine.runtime.variables import without_secrets

LEFT_OUT = ("tests", "test", "docs", "examples", ".git", ".venv", "venv", "build", "dist")
"""Folders of a project whose files are no part of its package."""
MOST_SOURCE_BYTES = 2**24
DOWNLOAD_S = 300


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download the wheel of a requirement from the package index to a folder, without what it
    depends on. Raises ConfigError."""
    options = ("--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement],
            capture_output=True,
            text=True,
            env=without_secrets(),
            timeout=DOWNLOAD_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError.of(
            "task.slow",
            f"{requirement} was not downloaded within {DOWNLOAD_S} s.",
            "Check the network connection, and try again.",
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [one for one in done.stderr.splitlines() if one.startswith("ERROR:")]
        why = lines[0].removeprefix("ERROR:").strip() if lines else "pip found no wheel"
        raise ConfigError.of(
            "task.not_found",
            f"The package {requirement} cannot be downloaded: {why}.",
            "Check the name and the network; a package without a wheel can be named as a folder.",
            detail=done.stderr[-4000:],
        )
    return wheels[0]


def sources_of_wheel(file: Path) -> dict[str, str]:
    """Python files of a wheel: path → text. Raises ConfigError for files that are too large."""
    with zipfile.ZipFile(file) as wheel:
        infos = [info for info in wheel.infolist() if info.filename.endswith(".py")]
        _check_size(sum(info.file_size for info in infos), file.name)
        return {info.filename: wheel.read(info).decode(errors="replace") for info in infos}


def sources_of_folder(folder: Path) -> dict[str, str]:
    """Python files below an import folder: relative path → text. Raises ConfigError for files that
    are too large."""
    files = [
        file
        for file in sorted(folder.rglob("*.py"))
        if file.is_file() and not set(file.relative_to(folder).parts[:-1]) & set(LEFT_OUT)
    ]
    _check_size(sum(file.stat().st_size for file in files), folder.name)
    return {
        file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8", errors="replace")
        for file in files
    }


def _check_size(size: int, name: str) -> None:
    if size > MOST_SOURCE_BYTES:
        raise ConfigError.of(
            "task.too_large",
            f"{name} has more than {MOST_SOURCE_BYTES >> 20} MB of Python files.",
            "Choose a folder with less in it.",
        )


def top_level_names(text: str) -> set[str]:
    """Names that a module's text defines or imports at its top level."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.Assign):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return found
