"""Write an .art folder with ART's own writer. Run by the Python of the benchmark environment.

argv: the folder of a model. Everything is written by ART 0.5.18's own classes and
functions: version 1 of its Parquet, its earlier JSON lines, and these as it migrates them.
"""

import importlib
import importlib.metadata
import math
import sys
import types
from pathlib import Path
from typing import Any

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}


def load() -> dict[str, Any]:
    """Load ART's modules without the imports of its package, which need its training stack."""
    files = importlib.metadata.files("openpipe-art") or []
    file = next(file for file in files if str(file) == "art/trajectories.py")
    home = Path(str(file.locate())).parent
    for name in ("art", "art.utils"):
        module = types.ModuleType(name)
        module.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    for name, contents in {
        "litellm": {},
        "litellm.types": {},
        "litellm.types.utils": {"Choices": type("Choices", (), {})},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(contents)
        sys.modules[name] = module
    modules = ("trajectories", "types", "utils.trajectory_logging", "utils.trajectory_migration")
    return {name: importlib.import_module(f"art.{name}") for name in modules}


def main() -> None:
    art = load()
    home = Path(sys.argv[1]) / "trajectories"
    trajectory, group = art["trajectories"].Trajectory, art["trajectories"].TrajectoryGroup
    choice = art["types"].Choice

    def reply(text: str, reason: str = "stop", **more: Any) -> Any:
        message = {"role": "assistant", "content": text, **more}
        return choice(finish_reason=reason, index=0, message=message)

    def make_trajectory(question: str, *rest: Any, **fields: Any) -> Any:
        return trajectory(
            messages_and_choices=[{"role": "user", "content": question}, *rest], **fields
        )

    first = group(
        [
            make_trajectory(
                "What is above?",
                reply("", tool_calls=[CALL]),
                {"role": "tool", "tool_call_id": "c1", "content": "blue ✓"},
                reply("It is blue."),
                reward=1.0,
                metrics={"correct": True, "duration": 2.5, "lost": math.inf},
                metadata={"scenario_id": "sky", "level": 3},
                tools=[TOOL],
                logs=["looked up"],
            ),
            make_trajectory(
                "What is above?", reply("No idea"), reward=0.25, metadata={"scenario_id": "sky"}
            ),
            make_trajectory(
                "What is above?", reply("?"), reward=math.nan, metadata={"scenario_id": "sky"}
            ),
        ],
        metrics={"spread": 0.75},
        logs=["three tries"],
    )
    second = group(
        [make_trajectory("Und grün?", reply("Gras"), reward=1.0), ValueError("the agent fell over")]
    )
    empty = group([], exceptions=[RuntimeError("all fell over")])
    write = art["utils.trajectory_logging"].write_trajectory_groups_parquet
    for split, step, groups in (
        ("train", 0, [first, empty, second]),
        ("train", 1, [second]),
        ("val", 0, [second]),
        ("test", 0, [second]),
    ):
        (home / split).mkdir(parents=True, exist_ok=True)
        write(groups, home / split / f"{step:04d}.parquet")
    long = trajectory(
        messages_and_choices=[{"role": "user", "content": "Go on"}, reply("and on", "length")],
        reward=0.5,
        additional_histories=[
            {"messages_and_choices": [{"role": "user", "content": "aside"}, reply("whisper")]}
        ],
    )
    old = art["utils.trajectory_migration"]
    for step in (2, 3):
        file = home / "train" / f"{step:04d}.jsonl"
        file.write_text(old.serialize_trajectory_groups([group([long]), second]))
        if step == 3:
            done = old.migrate_jsonl_to_parquet(file, delete_original=False)
            assert done.files_migrated == 1, done.errors


if __name__ == "__main__":
    main()
