"""Scores stored completions by Inspect itself: `evaluate.py PROJECT CASES OUT`.

CASES is a JSON list of {"row", "answers"}; a model of Inspect repeats the answers to its own
evaluation of the task. OUT gets a list of scores, name → value. Runs in the project's environment.
"""

import json
import sys
from pathlib import Path

from inspect_ai import eval as evaluate
from inspect_ai import task_with
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import value_to_float

PROJECT = Path(sys.argv[1])
SETTINGS = json.loads((PROJECT / "environment.json").read_text())
sys.path[:0] = [str(PROJECT / "environment")]


def task():
    if SETTINGS["registered"]:
        from inspect_evals import _registry as module
    else:
        module = __import__(SETTINGS["module"])
    return getattr(module, SETTINGS["task"])(**SETTINGS["arguments"])


def main():
    to_float = value_to_float()
    found = []
    for case in json.loads(Path(sys.argv[2]).read_text()):
        row = dict(case["row"])
        sample = Sample.model_validate({"input": row.pop("prompt"), **row})
        outputs = [ModelOutput.from_content("mockllm", text) for text in case["answers"]]
        for output in outputs:
            output.usage = ModelUsage()  # else tokens are counted, with a downloaded tokenizer
        model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
        (log,) = evaluate(
            task_with(task(), dataset=[sample]),
            model=model,
            display="none",
            log_dir=str(PROJECT / "inspect-logs"),
        )
        if log.status != "success":
            raise RuntimeError(str(log.error))
        values = {}
        for name, score in log.samples[0].scores.items():
            if isinstance(score.value, dict):
                values |= {f"{name}/{key}": to_float(one) for key, one in score.value.items()}
            else:
                values[name] = to_float(score.value)
        found.append(values)
    Path(sys.argv[3]).write_text(json.dumps(found))


main()
