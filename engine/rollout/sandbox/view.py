"""Parts of this machine that an agent sees in a sandbox: system folders, its interpreter and its
project."""

import os
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.protocol.config.project import AgentConfig
from engine.runtime.variables import allowed_environment

CODE, SCRATCH = "/run/atelier", "/scratch"
"""Folders of the sandbox with the host's own files, and for a rollout's files."""
HERE = Path(__file__).parent
LAUNCHER = HERE / "launcher.py"
HOST_FILES = (
    HERE / "sandboxed_host.py",
    HERE / "sandboxed_kernel.py",
    HERE / "sandboxed_rollout.py",
    HERE / "sandboxed_trial.py",
    HERE.parent / "agents" / "host_agent.py",
    HERE.parent / "agents" / "host_results.py",
)
SECRETS = ("/etc/ssl/private", "/etc/pki/tls/private")
OF_OTHERS = ("runs", ".git", ".env", ".atelier")
"""Files and folders of a project that no code in a sandbox sees."""
OF_VERIFIERS = ("rewards.py", "rubric.md", "scenarios", "demonstrations")
"""Files and folders of a project that its agent does not see: they tell how it is scored."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu")


def view_of(
    project: Path, config: AgentConfig, python: str, program: list[str], verifies: bool
) -> dict[str, Any]:
    """View for the launcher: `program` with the interpreter `python`, in the folder `project`.
    With `verifies`, reward functions and scenarios are visible, else hidden."""
    hidden = OF_OTHERS if verifies else (*OF_OTHERS, *OF_VERIFIERS)
    environment = allowed_environment(
        {
            "HOME": SCRATCH,
            "TMPDIR": "/tmp",
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",  # it would send attempts to OpenAI
        }
    )
    for name in ("USER", "LD_LIBRARY_PATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    environment = {k: v for k, v in environment.items() if not k.startswith(("XDG_", "HF_"))}
    environment["PATH"] = os.pathsep.join(
        [str(Path(python).parent), environment.get("PATH", os.defpath)]
    )
    shown = [*interpreter_folders(python), *command_folders(config.command), str(project)]
    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "scratch": SCRATCH,
        "cwd": str(project),
        "visible": [
            *((str(file), f"{CODE}/{file.name}") for file in HOST_FILES),
            *((folder, folder) for folder in without_nested(shown)),
        ],
        "hidden": [*SECRETS, *(str(project / name) for name in hidden)],
        "program": program,
        "environment": environment,
    }


def interpreter_folders(python: str) -> list[str]:
    """Folders that the interpreter `python` reads: of each symlink on the way to it, of its virtual
    environment's base, and those that .pth files name (editable installs)."""
    found, path = [], Path(python)
    for _ in range(20):
        found.append(path.parent.parent)
        if not path.is_symlink():
            break
        path = path.parent / os.readlink(path)
    found.append(Path(python).resolve().parent.parent)
    settings = Path(python).parent.parent / "pyvenv.cfg"
    if settings.is_file():
        for line in settings.read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home" and value.strip():
                found.append(Path(value.strip()).resolve().parent)
    for site in Path(python).parent.parent.glob("lib/python3*/site-packages/*.pth"):
        lines = (line.strip() for line in site.read_text(errors="replace").splitlines())
        found += [Path(line) for line in lines if line.startswith("/") and Path(line).is_dir()]
    return [str(Path(os.path.normpath(one))) for one in found]


def command_folders(command: str | None) -> list[str]:
    """Folder of the program that a command starts, with the folders beside it (bin, lib …)."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        return []
    program = shutil.which(words[0]) if words else None
    if program is None:
        return []
    return [str(one.parent.parent) for one in (Path(program), Path(program).resolve())]


def without_nested(folders: Iterable[str]) -> list[str]:
    """Folders that are not inside another one or a system folder, each once; never the root or the
    home folder itself."""
    barred = {"/", str(Path.home()), "/home"}
    wanted = sorted({one for one in folders if one not in barred})
    kept: list[str] = []
    for one in wanted:
        if not any(Path(one).is_relative_to(known) for known in (*SYSTEM, *kept)):
            kept.append(one)
    return kept
