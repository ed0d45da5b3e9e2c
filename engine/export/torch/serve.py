"""Export process: `python -m engine.export.torch.serve LINE LIFE`. The arguments are file
descriptors: the socket for requests, and a pipe that closes when the engine ends.

One process writes the export and evaluates the trained model; another one reads the files back.
Requests are handled one after another. To cancel a request, kill the process.
"""

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError

from engine.export.publish import check_files, check_room, disk_problem, manifest_of
from engine.export.torch import companion_files
from engine.export.torch.gguf_file import FILE, write_gguf
from engine.export.torch.llamacpp import convert, find_converter
from engine.export.torch.logprobs import (
    Computing,
    Passage,
    greedy_continuations,
    load_exported,
    load_trained,
    pick_computing,
)
from engine.export.torch.merge import (
    CONFIG,
    WEIGHTS,
    BaseWeights,
    Progress,
    read_adapter,
    write_merged,
)
from engine.export.torch.weights import check_adapter, check_gguf, check_merged
from engine.hardware.machine import threads
from engine.models.architectures import reads_images
from engine.models.file_checks import read_json
from engine.protocol.problems import AtelierError, ModelError, PolicyError, Problem, Refused
from engine.protocol.requests.exports import ExportPhase, WeightsCheck
from engine.runtime.life_pipe import exit_with_engine

MERGED = "merged"
"""Folder with the input of llama.cpp's converter, kept for the check of the weights."""

Answer = dict[str, Any]


class ExportServer:
    """Handler of requests, one after another, with progress messages."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._number = 0

    def run(self) -> None:
        with self._line.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message["op"] != "cancel":  # it has been answered by then
                    self._handle(message)

    def _handle(self, message: Answer) -> None:
        self._number = message["id"]
        try:
            self._send("ok", getattr(self, f"_op_{message['op']}")(message))
        except AtelierError as error:
            self._send("error", error.problem.model_dump())
        except (torch.OutOfMemoryError, MemoryError) as error:
            self._send("error", _no_memory(error).model_dump())
        except (OSError, SafetensorError) as error:
            problem = disk_problem(error)
            if problem is None:
                raise
            self._send("error", problem.model_dump())

    def _send(self, kind: str, value: Any) -> None:
        body = json.dumps({"id": self._number, kind: value})
        self._line.sendall(body.encode() + b"\n")

    def _progress(self, phase: ExportPhase) -> Progress:
        return lambda done, total: self._send(
            "part", {"phase": phase, "done": done, "total": total}
        )

    def _op_stops(self, message: Answer) -> Answer:
        return {"stops": companion_files.stop_tokens(Path(message["base"]))}

    def _op_build(self, message: Answer) -> Answer:
        """Write the export's files into an empty folder; returns their manifest."""
        base, adapter = Path(message["base"]), Path(message["adapter"])
        out, dtype = Path(message["out"]), message["dtype"]
        match message["format"]:
            case "adapter":
                _build_adapter(base, adapter, out, message["base_name"])
                self._progress("writing")(1, 1)
            case "merged":
                self._build_merged(base, adapter, out, dtype, message["shard_bytes"])
            case "gguf":
                self._build_gguf(base, adapter, out, message)
        return {"files": manifest_of(out)}

    def _build_merged(
        self, base: Path, adapter: Path, out: Path, dtype: str, shard_bytes: int
    ) -> None:
        progress = self._progress("writing")
        weights, kind = BaseWeights(base), getattr(torch, dtype)
        factors = read_adapter(adapter, weights)
        write_merged(weights, factors, out, kind, shard_bytes, progress)
        companion_files.write_tokenizer(base, out)
        companion_files.write_config(base, out, dtype)
        if not reads_images(read_json(base / "config.json")):
            companion_files.write_modelfile(base, out, ".")

    def _build_gguf(self, base: Path, adapter: Path, out: Path, message: Answer) -> None:
        if reads_images(read_json(base / "config.json")):
            raise ModelError.of(
                "export.no_gguf",
                "Models that read images are not exported as GGUF, which has a second file for the "
                "vision model.",
                "Export merged weights.",
            )
        dtype, weights = message["dtype"], BaseWeights(base)
        factors = read_adapter(adapter, weights)
        stops, progress = companion_files.stop_tokens(base), self._progress("writing")
        try:
            write_gguf(weights, factors, out, dtype, message["title"], stops, progress)
        except ModelError as error:
            script = find_converter()
            if script is None or not error.problem.code.startswith("export.gguf_"):
                raise
            merged = Path(message["work"]) / MERGED
            check_room(merged.parent, 4 * weights.count())
            merged.mkdir()
            self._build_merged(base, adapter, merged, "float32", 2**62)
            (out / FILE).unlink(missing_ok=True)
            convert(script, merged, out / FILE, dtype)
        companion_files.write_modelfile(base, out, f"./{FILE}")
        companion_files.write_licence(base, out)

    def _op_push(self, message: Answer) -> Answer:
        """Upload a folder with the token in the message, in a process only for this purpose."""
        return {"url": push(Path(message["folder"]), message["name"], message["token"])}

    def _op_reference(self, message: Answer) -> Answer:
        """Log-probs of the trained model: base and adapter, not merged."""
        base, computing = Path(message["base"]), pick_computing(Path(message["base"]))
        model = load_trained(base, Path(message["adapter"]), computing)
        return self._speak(model, message, "reference") | {"computing": computing.model_dump()}

    def _op_files(self, message: Answer) -> Answer:
        return check_files(Path(message["out"]), message["files"]).model_dump()

    def _op_weights(self, message: Answer) -> Answer:
        return self._weights(message).model_dump()

    def _weights(self, message: Answer) -> WeightsCheck:
        base, adapter = BaseWeights(Path(message["base"])), Path(message["adapter"])
        out, progress = Path(message["out"]), self._progress("weights")
        match message["format"]:
            case "adapter":
                return check_adapter(adapter, out)
            case "merged":
                return check_merged(
                    base, read_adapter(adapter, base), out, message["dtype"], progress
                )
        merged = Path(message["work"]) / MERGED
        if merged.is_dir():
            checked = check_merged(base, read_adapter(adapter, base), merged, "float32", progress)
            return checked.model_copy(update={"converted": True})
        return check_gguf(base, read_adapter(adapter, base), out / FILE, progress)

    def _op_same(self, message: Answer) -> Answer:
        base, out = Path(message["base"]), Path(message["out"])
        return companion_files.compare(base, out, message["format"]).model_dump()

    def _op_read_back(self, message: Answer) -> Answer:
        computing = Computing.model_validate(message["computing"])
        out, base = Path(message["out"]), Path(message["base"])
        model = load_exported(out, message["format"], base, computing)
        return self._speak(model, message, "reading_back")

    def _speak(self, model: Any, message: Answer, phase: ExportPhase) -> Answer:
        passages = [Passage.model_validate(one) for one in message["passages"]]
        stops, most_new = message["stops"], message["most_new"]
        return greedy_continuations(
            model, passages, stops, most_new, self._progress(phase)
        ).model_dump()


def _build_adapter(base: Path, adapter: Path, out: Path, base_name: str) -> None:
    config = read_json(adapter / CONFIG)
    config["base_model_name_or_path"] = base_name
    (out / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    shutil.copyfile(adapter / WEIGHTS, out / WEIGHTS)
    companion_files.write_tokenizer(base, out)


def _no_memory(error: BaseException) -> Problem:
    return PolicyError.of(
        "export.no_memory",
        "Memory ran out during the export.",
        "Free memory (stop a run, for example), or compare fewer prompts.",
        detail=str(error)[:2000],
    ).problem


def main() -> None:
    line, life = int(sys.argv[1]), int(sys.argv[2])
    exit_with_engine(life)
    torch.set_num_threads(threads())
    ExportServer(socket.socket(fileno=line)).run()


if __name__ == "__main__":
    main()


def push(folder: Path, name: str, token: str) -> str:
    """Create ORG/NAME on the hub (private if new) and upload all files; returns its URL. Raises
    Refused with the hub's message, without the token."""
    hub = HfApi(token=token)
    try:
        hub.create_repo(name, private=True, exist_ok=True)
        hub.upload_folder(folder_path=folder, repo_id=name, commit_message="Export from Atelier")
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise Refused.of(
            "export.not_pushed",
            f"The Hub refused the upload: {_words(error, token)}",
            "The export is kept. Check the repository name and the write access of the token.",
        ) from None
    return f"{hub.endpoint}/{name}"


def _words(error: Exception, token: str) -> str:
    lines = str(error).replace(token, "…").strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
