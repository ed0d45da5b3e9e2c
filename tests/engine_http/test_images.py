"""Images of runs over HTTP: served from the run folder, present in branches."""

from pathlib import Path

import httpx
import pytest

from engine.protocol.events.run import RunFinished
from engine.protocol.problems import Refused
from engine.protocol.requests.runs import StartRun
from engine.storage.run_folder.images import ImageStore
from tests.engine_http.conftest import Engine

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


def test_image_is_served_and_a_branch_has_it(engine: Engine, project: Path) -> None:
    run = engine.train(project, **{"train.steps": 1, "train.checkpoint_every": 1})
    assert isinstance(engine.wait(run)[-1], RunFinished)
    name = ImageStore(Path(run.path)).add(PNG)
    assert engine.call(lambda client: client.image(run.id, name)) == PNG
    answer = httpx.get(
        f"http://127.0.0.1:{engine.port}/runs/{run.id}/images/{name}",
        headers={"authorization": f"Bearer {engine.token}"},
    )
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in answer.headers["cache-control"]
    for other in ("0" * 64, "..%2Frun.json", "run.json"):
        with pytest.raises(Exception, match=r"has no image|no route"):
            engine.call(lambda client, other=other: client.image(run.id, other))
    request = StartRun(project=str(project), origin=f"{run.name}@1", overrides={"train.steps": 2})
    child = engine.call(lambda client: client.start_run(request))
    engine.wait(child)
    assert engine.call(lambda client: client.image(child.id, name)) == PNG
    engine.call(lambda client: client.remove_run(run.id))
    assert engine.call(lambda client: client.image(child.id, name)) == PNG
    with pytest.raises(Refused):
        engine.call(lambda client: client.image(run.id, name))
