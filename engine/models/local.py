"""Models on this machine: starters, the hub's cache, uploaded models and folders; deletion."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.models.architectures import architecture_problem
from engine.models.file_checks import check_folder, read_json
from engine.models.partial import existing, is_elsewhere, repo_folder
from engine.models.registry import (
    STARTERS,
    converted,
    hub_cache,
    hub_models,
    starter_called,
    uploaded_models,
)
from engine.protocol.problems import ModelError, Problem, Refused
from engine.protocol.requests.models import LocalModel


def local_models(folders: Iterable[str] = ()) -> list[LocalModel]:
    """List the starter models that Atelier offers, all models in this machine's caches, and those
    of the model folders `folders`, each with its size on disk."""
    whole, bare = hub_models(), hub_models(weights=False)
    repos = sorted(_repos(), key=lambda repo: repo.repo_id.lower())
    return [
        *(_starter(starter.name) for starter in STARTERS),
        *(_in_cache(repo, whole.get(repo.repo_id), bare.get(repo.repo_id)) for repo in repos),
        *(
            _of_folder(name, folder, "uploaded")
            for name, folder in sorted(uploaded_models().items())
        ),
        *(
            _of_folder(name, Path(name).expanduser(), "folder")
            for name in sorted(set(folders))
            if Path(name).expanduser().is_dir()
        ),
    ]


def delete_model(name: str) -> int:
    """Delete a model from this machine's caches; returns the freed bytes. Raises ModelError if it
    is not there, Refused for a folder or while it is being downloaded."""
    if is_elsewhere(name):
        raise Refused.of(
            "models.downloading", f"{name} is being downloaded.", "Cancel the download first."
        )
    if (starter := starter_called(name)) and (folder := converted(starter)):
        return _remove(folder)
    if repo := next((repo for repo in _repos() if repo.repo_id == name), None):
        return _delete_revisions(repo)
    if folder := uploaded_models().get(name):
        return _remove(folder)
    if Path(name).expanduser().is_dir():
        raise Refused.of(
            "models.own_folder",
            f"{name} is your own folder, which Atelier does not delete.",
            "Delete it with your file manager.",
        )
    raise ModelError.of(
        "models.not_here", f"{name} is not on this machine.", "See `atelier models list`."
    )


def installed_folder(name: str) -> Path | None:
    """Return the folder that `delete_model` would delete; None if there is none."""
    if starter := starter_called(name):
        return converted(starter)
    if (folder := repo_folder(name)).is_dir():
        return folder
    return uploaded_models().get(name)


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in a folder; links are not followed."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def disk_size(folder: Path) -> int:
    """Size in bytes of the disk that holds a folder."""
    return shutil.disk_usage(existing(folder)).total


def _starter(name: str) -> LocalModel:
    starter = starter_called(name)
    assert starter is not None
    folder = converted(starter)
    return LocalModel(
        name=starter.name,
        title=starter.title,
        kind="starter",
        path=str(folder) if folder else None,
        bytes=folder_bytes(folder) if folder else 0,
        download_bytes=None if folder else starter.download_bytes,
        parameters=starter.parameters,
        used_at=_used_at(folder) if folder else None,
        removable=folder is not None,
    )


def _repos() -> list[Any]:
    """Return models of the hub's cache, as huggingface_hub describes them."""
    from huggingface_hub import scan_cache_dir

    if not hub_cache().is_dir():
        return []
    return [repo for repo in scan_cache_dir(hub_cache()).repos if repo.repo_type == "model"]


def _in_cache(repo: Any, whole: Path | None, bare: Path | None) -> LocalModel:
    """Describe a model of the hub's cache; its complete snapshot is `whole`, the one that may lack
    weights is `bare` (None: there is none)."""
    newest = max(repo.revisions, key=lambda revision: revision.last_modified, default=None)
    folder = whole or bare or (newest.snapshot_path if newest else repo.repo_path)
    weights = whole is not None or bare is None
    return LocalModel(
        name=repo.repo_id,
        title=repo.repo_id.rpartition("/")[2],
        kind="hub",
        path=str(folder),
        weights=weights,
        bytes=repo.size_on_disk,
        used_at=repo.last_accessed,
        removable=True,
        problem=_problem_of(folder, repo.repo_id, weights),
    )


def _of_folder(name: str, folder: Path, kind: Any) -> LocalModel:
    return LocalModel(
        name=name,
        title=Path(name).name,
        kind=kind,
        path=str(folder),
        bytes=folder_bytes(folder),
        used_at=_used_at(folder),
        removable=kind == "uploaded",
        problem=_problem_of(folder, name),
    )


def _problem_of(folder: Path, name: str, weights: bool = True) -> Problem | None:
    try:
        check_folder(folder, name, weights)
        return architecture_problem(read_json(folder / "config.json"), name)
    except ModelError as error:
        return error.problem


def _used_at(folder: Path) -> float | None:
    """Return the Unix time of the last access to a file of the folder; None if it has none."""
    return max((file.stat().st_atime for file in folder.glob("*") if file.is_file()), default=None)


def _delete_revisions(repo: Any) -> int:
    from huggingface_hub import scan_cache_dir

    commits = [revision.commit_hash for revision in repo.revisions]
    if not commits:
        return _remove(repo.repo_path)
    strategy = scan_cache_dir(hub_cache()).delete_revisions(*commits)
    strategy.execute()
    return int(strategy.expected_freed_size)


def _remove(folder: Path) -> int:
    size = folder_bytes(folder)
    shutil.rmtree(folder)
    return size
