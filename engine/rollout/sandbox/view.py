"""Parts of this machine that an agent sees in a sandbox: system folders, its interpreter and its
project."""

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.protocol.config.agent import AgentConfig
from engine.runtime.variables import allowed_environment

CODE, SCRATCH, PROJECT = "/run/atelier", "/scratch", "/project"
"""Folders of the sandbox with the host's own files, for a rollout's files, and of the project if
the file system is that of a container image."""
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
VARIABLES = {
    "HOME": SCRATCH,
    "TMPDIR": "/tmp",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",  # it would send attempts to OpenAI
}
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECRETS = ("/etc/ssl/private", "/etc/pki/tls/private")
OF_OTHERS = ("runs", ".git", ".env", ".atelier")
"""Files and folders of a project that no code in a sandbox sees."""
OF_VERIFIERS = ("rewards.py", "rubric.md", "scenarios", "demonstrations")
"""Files and folders of a project that its agent does not see: they tell how it is scored."""
PRIVATE = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".password-store"),
    *(".mozilla", ".thunderbird", ".netrc", ".git-credentials", ".local/share/keyrings"),
    *(".local/share/atelier", ".huggingface", ".cache/huggingface/token"),
)
"""Places in a home folder whose contents are never visible."""
PRIVATE_WHOLE = (".local/share", ".local/state", ".cache")
"""Places in a home folder of which single folders may be visible, such as an interpreter's."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu")


def view_of(
    project: Path, config: AgentConfig, python: str, program: list[str], verifies: bool
) -> dict[str, Any]:
    """View for the launcher: `program` with the interpreter `python`, in the folder `project`.
    With `verifies`, reward functions and scenarios are visible, else hidden."""
    hidden = hidden_names(verifies)
    environment = allowed_environment(VARIABLES)
    for name in ("USER", "LD_LIBRARY_PATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    environment = {k: v for k, v in environment.items() if not k.startswith(("XDG_", "HF_"))}
    environment["PATH"] = os.pathsep.join(
        [str(Path(python).parent), environment.get("PATH", os.defpath)]
    )
    shown = [*interpreter_folders(python), *command_folders(config.command), str(project)]
    return {
        "root": "",
        "uid": os.getuid(),
        "gid": os.getgid(),
        "scratch": SCRATCH,
        "cwd": str(project),
        "visible": [*host_files(), *((folder, folder) for folder in without_nested(shown))],
        "hidden": [
            *SECRETS,
            *(str(project / name) for name in hidden),
            *(str((project / name).resolve()) for name in hidden if (project / name).is_symlink()),
        ],
        "program": program,
        "environment": environment,
    }


def view_of_image(
    project: Path, folder: Path, environment: Mapping[str, str], verifies: bool
) -> dict[str, Any]:
    """View for the launcher in which the system is the unpacked container image in `folder`, with
    the image's `environment`, and the project is in `PROJECT`. Its program is set by the caller,
    who knows the image's Python."""
    targets = [f"{PROJECT}/{name}" for name in hidden_names(verifies)]
    inside = project.resolve()
    for name in hidden_names(verifies):
        file = (project / name).resolve()
        if (project / name).is_symlink() and file.is_relative_to(inside):
            targets.append(f"{PROJECT}/{file.relative_to(inside)}")
    kept = {name: value for name, value in environment.items() if name not in ("HOME", "TMPDIR")}
    return {
        "root": str(folder),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "scratch": SCRATCH,
        "cwd": PROJECT,
        "visible": [*host_files(), (str(project), PROJECT)],
        "hidden": targets,
        "program": [],
        "environment": {"PATH": IMAGE_PATH, **kept, **VARIABLES},
    }


def hidden_names(verifies: bool) -> tuple[str, ...]:
    """Files and folders of a project that are not visible, for its rewards (`verifies`) or for its
    agent."""
    return OF_OTHERS if verifies else (*OF_OTHERS, *OF_VERIFIERS)


def host_files() -> list[tuple[str, str]]:
    """Files of the host and their paths in the sandbox."""
    return [(str(file), f"{CODE}/{file.name}") for file in HOST_FILES]


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
    """Folders that the program of a command reads: the one that holds its `bin` with what lies
    beside it (lib …), or the program alone where that folder is private, as ~/.local is."""
    try:
        words = shlex.split(command or "")
    except ValueError:
        return []
    program = shutil.which(words[0]) if words else None
    if program is None:
        return []
    files = (Path(os.path.abspath(program)), Path(program).resolve())
    return [str(one if is_private(one.parent.parent) else one.parent.parent) for one in files]


def without_nested(folders: Iterable[str]) -> list[str]:
    """Folders that are not private, nor inside another one or a system folder, each once."""
    wanted = sorted({one for one in folders if not is_private(Path(one))})
    kept: list[str] = []
    for one in wanted:
        if not any(Path(one).is_relative_to(known) for known in (*SYSTEM, *kept)):
            kept.append(one)
    return kept


def is_private(folder: Path) -> bool:
    """Whether a folder, or the one that it is a link to, is in a place of `PRIVATE` or contains one
    of these or of `PRIVATE_WHOLE`. A project or a package names the folders that are asked about:
    its interpreter, its command, its .pth files."""
    homes = {Path.home(), Path.home().resolve()}
    inside = [home / name for home in homes for name in PRIVATE]
    whole = [home / name for home in homes for name in PRIVATE_WHOLE]
    return any(
        any(place.is_relative_to(one) for place in (*inside, *whole))
        or any(one.is_relative_to(place) for place in inside)
        for one in (folder, folder.resolve())
    )
