"""Record the messages that ART's own `ruler` sends. Run by the benchmark environment's Python.

stdin: a JSON list of {"message_lists", "rubric", "tools"}; stdout: the messages it sent for each.
"""

import asyncio
import importlib.metadata
import importlib.util
import json
import sys
import types
from typing import Any


class PromptSent(Exception):
    """Raised in place of a completion: only the request matters."""


def load_ruler() -> tuple[Any, list[Any]]:
    prompts: list[Any] = []

    async def acompletion(*, messages: Any, **_: Any) -> Any:
        prompts.append(messages)
        raise PromptSent

    for name, contents in {
        "litellm": {"acompletion": acompletion},
        "litellm.types": {},
        "litellm.types.utils": {"ModelResponse": object},
        "art": {"Tools": list, "TrajectoryGroup": object},
        "rich": {"print": lambda *_: None},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(contents)
        sys.modules[name] = module
    files = importlib.metadata.files("openpipe-art") or []
    file = next(file for file in files if str(file) == "art/rewards/ruler.py")
    spec = importlib.util.spec_from_file_location("ruler", str(file.locate()))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, prompts


def main() -> None:
    module, prompts = load_ruler()
    for case in json.loads(sys.stdin.read()):
        rubric = case["rubric"] if case["rubric"] is not None else module.DEFAULT_RUBRIC
        try:
            asyncio.run(module.ruler(case["message_lists"], rubric=rubric, tools=case["tools"]))
        except PromptSent:
            continue
    print(json.dumps(prompts))


if __name__ == "__main__":
    main()
