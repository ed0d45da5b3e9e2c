"""Reads logs by Inspect itself: `read_log.py OUT LOG …`.

OUT gets a JSON list with an object for each log. Inspect's own mean and standard error are computed
anew from the samples.
"""

import json
import sys
from pathlib import Path

from inspect_ai.log import (
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
)
from inspect_ai.scorer import SampleScore, mean, mean_score, stderr


def described(file):
    log = read_eval_log(file)
    header = read_eval_log(file, header_only=True)
    listed = [Path(one.name).name for one in list_eval_logs(str(Path(file).parent))]
    first = read_eval_log_sample(file, log.samples[0].id, log.samples[0].epoch)
    by_id = {}
    for sample in log.samples:
        if sample.scores:
            by_id.setdefault(sample.id, []).append(sample.scores["reward"])
    reduced = [SampleScore(score=mean_score()(scores), sample_id=k) for k, scores in by_id.items()]
    reward = next(one for one in log.results.scores if one.name == "reward")
    return {
        "status": log.status,
        "model": log.eval.model,
        "task": log.eval.task,
        "is_listed": Path(file).name in listed,
        "same_header": header.results == log.results,
        "summaries": len(read_eval_log_sample_summaries(file)),
        "samples": len(log.samples),
        "errors": sum(one.error is not None for one in log.samples),
        "mean": reward.metrics["mean"].value,
        "stderr": reward.metrics["stderr"].value,
        "own_mean": mean()(reduced),
        "own_stderr": stderr()(reduced),
        "reductions": {one.scorer: len(one.samples) for one in log.reductions},
        "first": {
            "roles": [message.role for message in first.messages],
            "completion": first.output.completion,
            "usage": sum(one.total_tokens for one in first.model_usage.values()),
            "tool_calls": [
                call.function
                for m in first.messages
                if m.role == "assistant"
                for call in m.tool_calls or ()
            ],
        },
    }


Path(sys.argv[1]).write_text(json.dumps([described(file) for file in sys.argv[2:]]))
