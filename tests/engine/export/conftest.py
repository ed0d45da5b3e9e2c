"""Fixtures: small models and adapters, made once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.export.make_run import make_run, save_adapter
from tests.engine.export.small_models import make_model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: faster for small models, and on busy machines."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small Llama model."""
    return make_model(tmp_path_factory.mktemp("small") / "small-llama")


@pytest.fixture(scope="session")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adapter with a B that changes every answer."""
    folder = tmp_path_factory.mktemp("adapter") / "adapter"
    save_adapter(model, folder, scale=0.1)
    return folder


@pytest.fixture(scope="session")
def faint(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Adapter with a B too small to show in log-probs, even when merged twice."""
    folder = tmp_path_factory.mktemp("faint") / "adapter"
    save_adapter(model, folder, scale=3e-6)
    return folder


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Path:
    """Run folder of the small model with a checkpoint of step 3."""
    return make_run(tmp_path / "project", model)
