"""Export of a checkpoint as one coroutine: read, write, compare with the trained model, publish.
Cancelling leaves nothing behind, unless the export was already published."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.export.model_card import model_card, provenance, served_name
from engine.export.parity import greedy_match, limits_for, logprob_gap, verdict_of
from engine.export.publish import Manifest, Place, disk_problem
from engine.export.serving import commands_for
from engine.export.source import Source, bytes_of, dtype_of, read_source
from engine.export.torch.llamacpp import VARIABLE
from engine.hardware.gpus import read_gpus
from engine.policy import fork_server
from engine.policy.worker import VARIABLES
from engine.protocol.events.checkpoints import CheckpointExported
from engine.protocol.problems import Refused
from engine.protocol.requests.exports import (
    ExportCheckpoint,
    ExportDtype,
    ExportPhase,
    ExportReport,
    ExportTicked,
    FilesCheck,
    GreedyMatch,
    ParityReport,
    Sameness,
    WeightsCheck,
)
from engine.rollout.rendering.chat import ChatFormat
from engine.runtime.child import Child, start_program
from engine.runtime.paths import ROOT
from engine.storage.run_folder.run import LOG

PARITY, PROVENANCE, CARD = "parity.json", "atelier.json", "README.md"
SHARES: dict[ExportPhase, tuple[float, float, str]] = {
    "checking": (0.0, 0.02, "checking the checkpoint"),
    "writing": (0.02, 0.22, "writing the weights"),
    "reference": (0.22, 0.55, "sampling from the trained model"),
    "weights": (0.55, 0.68, "checking every weight"),
    "reading_back": (0.68, 0.97, "sampling from the exported files"),
    "publishing": (0.97, 0.99, "publishing"),
    "pushing": (0.99, 1.0, "uploading to the hub"),
}
"""Start and end of each phase as a share of the whole, and its text."""

Tell = Callable[[ExportTicked], None]
Record = Callable[[CheckpointExported], Awaitable[object]]
Fields = dict[str, Any]


async def export_checkpoint(
    run: Path,
    step: int | None,
    request: ExportCheckpoint,
    tell: Tell,
    record: Record,
    pids: set[int] | None = None,
) -> ExportReport:
    """Export a checkpoint (`step` None: the newest) of the run in folder `run` and verify it.
    `tell` receives progress, `record` stores the event in the run, `pids` holds processes' PIDs.

    A report with the verdict `differs` and an empty path means that nothing was kept. On errors
    (Atelier's, ChildDied) nothing is left behind either, unless only the upload failed."""
    start_s = time.monotonic()
    _tick(tell, "checking", 0, 1)
    source = await asyncio.to_thread(read_source, run, step, request.prompts)
    dtype = dtype_of(request, source.base.folder)
    (run / LOG).parent.mkdir(exist_ok=True)
    place = Place.claim(request.out, bytes_of(source, request, dtype))
    try:
        pids = set() if pids is None else pids
        job = _Job(source, request, dtype, place, run / LOG, tell, pids)
        parity, manifest = await job.build_and_compare(start_s)
        if parity.verdict == "differs" and not request.force:
            return job.report(parity, "", 0)
        report = await _to_the_end(job.publish(parity, manifest, record))
    except OSError as error:
        if problem := disk_problem(error):
            raise Refused(problem) from error
        raise
    finally:
        place.clear()
    if request.push:
        _refuse_unproven(parity)
        report = report.model_copy(update={"pushed": await job.push()})
    return report


@dataclass
class _Job:
    """State that the stages of one export share."""

    source: Source
    request: ExportCheckpoint
    dtype: ExportDtype
    place: Place
    log: Path
    tell: Tell
    pids: set[int]

    @property
    def adapter(self) -> Path:
        return self.place.work / "adapter"

    async def build_and_compare(self, start_s: float) -> tuple[ParityReport, Manifest]:
        """Write the export in one process, and read it back in another for the comparison with the
        trained model. `start_s`: when the export began."""
        await asyncio.to_thread(self.source.copy_adapter, self.adapter)
        async with self._process() as builder, self._process() as reader:
            built = await self._ask(builder, "build", **self._building())
            passages = self._passages() | await builder.ask("stops", **self._paths)
            reference = await self._ask(builder, "reference", **self._paths, **passages)
            await builder.close()
            parity = await self._compare(reader, built["files"], passages, reference, start_s)
            return parity, built["files"]

    async def _compare(
        self, reader: Child, manifest: Manifest, passages: Fields, reference: Fields, start_s: float
    ) -> ParityReport:
        paths = self._paths
        files = FilesCheck.model_validate(await reader.ask("files", **paths, files=manifest))
        weights = same = exported = None
        if not files.wrong:
            checked = await self._ask(reader, "weights", **paths, dtype=self.dtype)
            weights = WeightsCheck.model_validate(checked)
            same = Sameness.model_validate(await reader.ask("same", **paths))
            computing = reference["computing"]
            exported = await self._ask(
                reader, "read_back", **paths, **passages, computing=computing
            )
        return self._judge(reference, exported, files, weights, same, start_s)

    def _judge(
        self,
        reference: Fields,
        exported: Fields | None,
        files: FilesCheck,
        weights: WeightsCheck | None,
        same: Sameness | None,
        start_s: float,
    ) -> ParityReport:
        computing = reference["computing"]
        limits = limits_for(self.dtype, computing["dtype"])
        gap = match = None
        if exported is not None:
            gap = logprob_gap(reference["logprobs"], exported["logprobs"])
            match = self._match(reference, exported, limits.tie)
        verdict, failures = verdict_of(limits, files, weights, gap, match, same)
        return ParityReport(
            verdict=verdict,
            failures=failures,
            forced=verdict == "differs" and self.request.force,
            format=self.request.format,
            dtype=self.dtype,
            computed_in=computing["dtype"],
            device=computing["device"],
            limits=limits,
            files=files,
            weights=weights,
            logprobs=gap,
            greedy=match,
            same=same,
            seconds=time.monotonic() - start_s,
        )

    def _match(self, reference: Fields, exported: Fields, tie: float) -> GreedyMatch | None:
        """Compare the greedy continuations; None if no sequence has a prompt."""
        rows = [row for row, one in enumerate(self.source.sequences) if one.prompt]
        prompts = [(one := self.source.sequences[n]).tokens[: one.prompt] for n in rows]
        ours, theirs, top = (
            [values[n] for n in rows]
            for values in (reference["greedy"], exported["greedy"], reference["top"])
        )
        chat = ChatFormat(self.source.base.folder)
        return greedy_match(prompts, ours, theirs, top, tie, chat.decode) if rows else None

    async def publish(
        self, parity: ParityReport, manifest: Manifest, record: Record
    ) -> ExportReport:
        """Write report and card, move the folder into place, and pass the event to `record`."""
        _tick(self.tell, "publishing", 0, 1)
        out, kind = self.place.out, self.request.format
        (out / PARITY).write_text(parity.model_dump_json(indent=1) + "\n")
        (out / PROVENANCE).write_text(provenance(self.source, kind, self.dtype, parity.computed_in))
        (out / CARD).write_text(model_card(self.source, parity))
        size = await asyncio.to_thread(self.place.publish, manifest)
        await record(
            CheckpointExported(
                step=self.source.checkpoint.step,
                format=kind,
                dtype=self.dtype,
                path=str(self.place.target),
                bytes=size,
                verdict=parity.verdict,
            )
        )
        return self.report(parity, str(self.place.target), size)

    async def push(self) -> str:
        """Upload the published folder; returns its URL. Raises Refused if the hub rejects it."""
        _tick(self.tell, "pushing", 0, 1)
        async with self._process(online=True) as process:
            answer = await process.ask(
                "push",
                folder=str(self.place.target),
                name=self.request.push,
                token=self.request.token,
            )
        return str(answer["url"])

    def report(self, parity: ParityReport, path: str, size: int) -> ExportReport:
        source, kind = self.source, self.request.format
        commands = commands_for(
            Path(path),
            kind,
            parity.computed_in,
            source.base.name,
            served_name(source.spec),
            source.spec.config.model.rank,
            source.reads_images,
            source.spec.config.model.adapt_experts,
        )
        return ExportReport(
            run_id=source.spec.id,
            step=source.checkpoint.step,
            path=path,
            bytes=size,
            parity=parity,
            commands=commands if path else [],
        )

    @property
    def _paths(self) -> Fields:
        return {
            "format": self.request.format,
            "base": str(self.source.base.folder),
            "adapter": str(self.adapter),
            "out": str(self.place.out),
            "work": str(self.place.work),
        }

    def _building(self) -> Fields:
        return {
            **self._paths,
            "dtype": self.dtype,
            "base_name": self.source.base.name,
            "title": self.source.title,
            "shard_bytes": self.request.shard_bytes,
        }

    def _passages(self) -> Fields:
        passages = [{"tokens": one.tokens, "prompt": one.prompt} for one in self.source.sequences]
        return {"passages": passages, "most_new": self.source.most_new}

    @contextlib.asynccontextmanager
    async def _process(self, online: bool = False) -> AsyncIterator[Child]:
        """Start an export process for the block and kill it at the end; only with `online` may it
        access the Hub."""
        argv = [sys.executable, "-m", "engine.export.torch.serve"]
        environment = dict(VARIABLES)
        if online:
            environment |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
        if named := os.environ.get(VARIABLE):
            environment[VARIABLE] = named
        cards = (await asyncio.to_thread(read_gpus)).cards
        start = start_program if cards else fork_server.launcher()
        process = await Child.spawn(
            "export", argv, cwd=ROOT, log=self.log, environment=environment, start=start
        )
        self.pids.add(process.pid)
        try:
            yield process
        finally:
            await asyncio.shield(process.kill())
            self.pids.discard(process.pid)

    async def _ask(self, process: Child, op: str, **fields: Any) -> Fields:
        """Send operation `op` with its arguments to an export process and return its answer;
        progress is passed to `tell`."""
        answer: Fields = {}
        async with contextlib.aclosing(process.stream(op, **fields)) as parts:  # type: ignore[type-var]
            async for answer in parts:
                if "phase" in answer:
                    _tick(self.tell, answer["phase"], answer["done"], answer["total"])
        return answer


async def _to_the_end(work: Awaitable[ExportReport]) -> ExportReport:
    """Finish publishing before a cancellation takes effect."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _refuse_unproven(parity: ParityReport) -> None:
    if parity.verdict == "differs":
        raise Refused.of(
            "export.not_pushed",
            "The export differs from the trained model, so it was not uploaded.",
            "The export is kept on this machine because of --force.",
        )


def _tick(tell: Tell, phase: ExportPhase, done: int, total: int) -> None:
    low, high, words = SHARES[phase]
    share = low + (high - low) * done / max(1, total)
    tell(ExportTicked(phase=phase, words=words, done=done, total=total, share=share))
