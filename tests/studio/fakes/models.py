"""Model routes for the fake engine: a hub with a few models, downloads that progress with each
request."""

from typing import Any

from starlette.requests import Request

from engine.protocol.problems import Problem
from engine.protocol.records.machine.hardware import MemoryPart
from engine.protocol.requests.models import (
    ActOnDownload,
    DeletedModel,
    DeleteModel,
    FitVerdict,
    HubFile,
    HubModel,
    LocalModel,
    ModelDownload,
    ModelFacts,
    ModelFit,
    ModelList,
)

GB = 1_000_000_000
UNREACHABLE = Problem(
    code="models.hub_unreachable",
    message="The Hugging Face hub cannot be reached.",
    hint="Check the connection (or HF_ENDPOINT); models on this machine still work.",
)
GATED = Problem(
    code="models.gated",
    message="meta-llama/Llama-3.2-3B-Instruct is gated: its authors ask you to accept their terms "
    "first.",
    hint="Accept the terms at https://huggingface.co/meta-llama/Llama-3.2-3B-Instruct, then run "
    "`hf auth login` (or set HF_TOKEN and restart the engine).",
)
NOT_CAUSAL = Problem(
    code="model.no_chat_template",
    message="Qwen/Qwen2.5-7B has no chat template, so chat messages cannot be turned into tokens.",
    hint="Use the instruct version of the model.",
)


def hub_model(name: str, parameters: int, licence: str, **values: Any) -> HubModel:
    return HubModel(
        id=name,
        parameters=parameters,
        weight_bytes=2 * parameters,
        parameters_of={"BF16": parameters},
        licence=licence,
        architecture="Qwen2ForCausalLM",
        **{"downloads": 2_412_345, "likes": 812, "updated_at": 1.78e9, "chat": True, **values},
    )


HUB = [
    hub_model("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, "apache-2.0"),
    hub_model("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, "apache-2.0", downloads=8_120_044),
    hub_model("Qwen/Qwen2.5-72B-Instruct", 72_706_203_648, "qwen", downloads=321_000),
    hub_model("Qwen/Qwen2.5-7B", 7_615_616_512, "apache-2.0", chat=False),
    hub_model("meta-llama/Llama-3.2-3B-Instruct", 3_212_749_824, "llama3.2", gated=True),
    HubModel(id="somebody/qwen-experiment-with-a-rather-long-name-v3-final-merged"),
]
VERDICTS: dict[str, FitVerdict] = {
    HUB[0].id: "fits",
    HUB[1].id: "fits_4bit",
    HUB[2].id: "too_large",
    HUB[3].id: "fits_4bit",
}


class FakeModels:
    """Model routes; change the fields to change the answers."""

    def __init__(self) -> None:
        self.local = [
            LocalModel(
                name="smollm2-135m-instruct",
                title="SmolLM2 135M Instruct",
                kind="starter",
                path="/models/smollm2",
                bytes=542_000_000,
                parameters=134_515_008,
                used_at=1.79e9,
                projects=("inbox-scout", "tiles"),
                runs=3,
                active_runs=("brave-otter",),
                removable=True,
            ),
            LocalModel(
                name="Qwen/Qwen2.5-0.5B-Instruct",
                title="Qwen2.5-0.5B-Instruct",
                kind="hub",
                path="/hub/qwen",
                bytes=GB,
                used_at=1.785e9,
                runs=2,
                removable=True,
            ),
        ]
        self.downloads: list[ModelDownload] = []
        self.bare: set[str] = set()
        """Names of models that are downloaded without their weights."""
        self.step_bytes = 400_000_000
        """Bytes that arrive per request."""
        self.offline = False
        self.searched: list[str] = []

    def routes(self) -> list[tuple[Any, ...]]:
        return [
            ("/models/here", self._here),
            ("/models/search", self._search),
            ("/models/facts", self._facts),
            ("/models/downloads", self._downloads, "GET"),
            ("/models/downloads", self._act, "POST"),
            ("/models/delete", self._delete, "POST"),
        ]

    async def _here(self, request: Request) -> ModelList:
        return ModelList(
            models=self.local,
            downloads=self.downloads,
            folder="/hub",
            free_bytes=69 * GB,
            disk_bytes=500 * GB,
        )

    async def _search(self, request: Request) -> Any:
        words = request.query_params["words"]
        self.searched.append(words)
        if self.offline:
            return _refusal(UNREACHABLE)
        return [one for one in HUB if any(w in one.id.lower() for w in words.lower().split())]

    async def _facts(self, request: Request) -> Any:
        name = request.query_params["name"]
        here = next((one for one in self.local if one.name == name), None)
        known = next((one for one in HUB if one.id == name), None)
        if here is None and (self.offline or known is None):
            return _refusal(
                UNREACHABLE
                if self.offline
                else Problem(
                    code="models.not_found",
                    message=f"The hub has no model {name}, or it is private.",
                    hint="Check the spelling (org/name).",
                )
            )
        model = known or hub_model(name, (here and here.parameters) or 494_000_000, "apache-2.0")
        if here is not None and here.weights:
            model = model.model_copy(update={"path": here.path})
        return facts_of(model)

    async def _downloads(self, request: Request) -> list[ModelDownload]:
        moved = []
        for one in self.downloads:
            done = one.done_bytes + self.step_bytes * (one.state == "downloading")
            if one.total_bytes is not None and done >= one.total_bytes:
                self.local = [
                    *(kept for kept in self.local if kept.name != one.name),
                    LocalModel(
                        name=one.name,
                        title=one.title,
                        kind="hub",
                        path=f"/hub/{one.name}",
                        bytes=one.total_bytes,
                        weights=one.name not in self.bare,
                        removable=True,
                    ),
                ]
            else:
                moved.append(one.model_copy(update={"done_bytes": done}))
        self.downloads = moved
        return self.downloads

    async def _act(self, request: Request) -> list[ModelDownload]:
        body = ActOnDownload.model_validate(await request.json())
        before = next((one for one in self.downloads if one.name == body.name), None)
        others = [one for one in self.downloads if one.name != body.name]
        if body.action == "cancel":
            self.downloads = others
            return others
        if body.action == "start" and body.weights is not None:
            (self.bare.discard if body.weights else self.bare.add)(body.name)
        model = next((one for one in HUB if one.id == body.name), None)
        total = (model.weight_bytes if model else None) or 93_000_000
        state = "downloading" if body.action == "start" else "paused"
        now = before or ModelDownload(
            name=body.name, title=body.name.rpartition("/")[2], state="queued", total_bytes=total
        )
        speed = 24e6 if state == "downloading" else None
        changed = {"state": state, "speed": speed, "rest_s": 95.0 if speed else None}
        self.downloads = [*others, now.model_copy(update=changed)]
        return self.downloads

    async def _delete(self, request: Request) -> Any:
        body = DeleteModel.model_validate(await request.json())
        found = next(one for one in self.local if one.name == body.name)
        self.local = [one for one in self.local if one.name != body.name]
        return DeletedModel(name=body.name, freed_bytes=found.bytes, runs=found.runs)


def facts_of(model: HubModel) -> ModelFacts:
    size = model.weight_bytes
    verdict = VERDICTS.get(model.id, "fits" if model.path else None)
    fit = ModelFit(unknown="The shapes of the model's weights are unknown.", device="NVIDIA L40S")
    if verdict and size:
        fit = ModelFit(
            verdict=verdict,
            device="NVIDIA L40S",
            peak_bytes=int(1.4 * size + 14 * GB),
            peak_4bit_bytes=int(0.4 * size + 14 * GB),
            room_bytes=24 * GB,
            parts=(
                MemoryPart(name="model", sampling_bytes=size, training_bytes=size),
                MemoryPart(name="activations", sampling_bytes=0, training_bytes=9 * GB),
                MemoryPart(name="keys and values", sampling_bytes=3 * GB, training_bytes=0),
                MemoryPart(
                    name="adapter and optimizer",
                    sampling_bytes=300_000_000,
                    training_bytes=300_000_000,
                ),
            ),
            formula="Peak of the larger phase, sampling or training, on the fullest GPU. "
            "Available: the GPU's memory minus memory used by other programs.",
            settings="the settings of inbox-scout",
        )
    shards = [HubFile(name=f"model-0000{n}-of-00002.safetensors", bytes=(size or 0) // 2)
              for n in (1, 2)]  # fmt: skip
    small = [
        HubFile(name="tokenizer.json", bytes=7_031_645),
        HubFile(name="config.json", bytes=663),
    ]
    return ModelFacts(
        summary=model,
        title=model.id.rpartition("/")[2],
        page=f"https://huggingface.co/{model.id}",
        files=(*shards, *small) if size else (),
        download_bytes=size,
        context_tokens=32_768,
        tools=True if model.chat else None,
        problem=GATED if model.gated else NOT_CAUSAL if model.chat is False else None,
        fit=fit,
    )


def _refusal(problem: Problem) -> Any:
    from tests.studio.fakes.projects import refusal

    return refusal(400, problem.code, problem.message, hint=problem.hint)
