"""ART's Backend, as version 0.5.18 of openpipe-art asks for it, over an engine of Atelier.

    backend = AtelierBackend()
    await model.register(backend)
    ...
    await backend.train(model, groups, learning_rate=1e-5)

What the script logs with `model.log` is written by ART to its usual files, and also sent to the
engine.
"""

import atexit
import os
import secrets
import sys
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from engine.integrations.art.engine_thread import CLOSING_S, Link
from engine.integrations.art.logging import forward_logs, training_metrics
from engine.integrations.art.serialization import left_out, not_finite, sent_group
from engine.integrations.art.settings import settings_of
from engine.integrations.art.train_arguments import TrainArguments, algorithm_of, train_arguments
from engine.launcher.local import default_workspace
from engine.protocol.problems import AtelierError, ConfigError, Refused
from engine.protocol.records.runs import Split
from engine.protocol.requests.scripts import LogOutside, OpenOutside, SentGroup, TrainGroups


class AtelierBackend:
    """ART backend over an engine of Atelier, which it finds or starts. Every registered trainable
    model is a run, which resumes where the script stopped."""

    def __init__(
        self,
        *,
        workspace: str | Path | None = None,
        project: str | None = None,
        python: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Configure the backend. `project` overrides the projects of the models. `python` runs an
        engine if one has to be started. `settings` are dotted keys of project.toml for new runs
        (`{"train.temperature": 0.8}`)."""
        place = Path(workspace).expanduser() if workspace else default_workspace()
        self._link = Link(place, python)
        self._project = project
        self._settings = dict(settings or {})
        self._script: str | None = sys._getframe(1).f_globals.get("__file__")
        self._keys: dict[tuple[str, str], str] = {}
        """Gateway keys of registered models, by project and name."""

    # What ART calls

    async def register(self, model: Any) -> None:
        """Make a trainable ART model send what it logs to the engine too; other models are left as
        they are. Raises ConfigError if a call of `train` in the script has a literal argument that
        is not supported."""
        if model.trainable:
            for given in train_arguments(self._script):
                algorithm_of(_knobs(given))
            forward_logs(model, self._log)

    async def _prepare_backend_for_training(
        self, model: Any, config: Mapping[str, Any] | None = None
    ) -> tuple[str, str]:
        """Return base URL and API key of the model's endpoint. Raises AtelierError."""
        settings, notes = settings_of(model, config)
        place = self._place(model)
        key = self._keys.setdefault(place, secrets.token_hex(24))
        request = OpenOutside(
            project=place[0],
            model=model.name,
            base_model=model.base_model,
            source=f"openpipe-art {version('openpipe-art')}",
            settings={**settings, **self._settings},
            pid=os.getpid(),
            key=key,
        )
        found = await self._link.ask(self._link.open(request))
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)
        _warn([*notes, *found.notes])
        return found.base_url, key

    def _model_inference_name(self, model: Any, step: int | None = None) -> str:
        """Return the model name for requests: that of a step, or of the newest policy for None."""
        name: str = model.name if model.trainable else model.inference_model_name or model.name
        return name if step is None else f"{name}@{step}"

    async def _get_step(self, model: Any) -> int:
        """Return the number of updates done. Raises AtelierError."""
        run = await self._link.ask(
            self._link.with_run(self._key(model), lambda client, run_id: client.run(run_id))
        )
        return run.step

    async def train(self, model: Any, trajectory_groups: Iterable[Any], **knobs: Any) -> Any:
        """Train one step on these groups; the arguments are those of ART's LocalBackend.train.
        Returns an art.LocalTrainResult. Raises AtelierError for arguments that are not supported.
        """
        from art.metrics_taxonomy import build_training_summary_metrics, summarize_trajectory_groups
        from art.types import LocalTrainResult

        groups, arguments = list(trajectory_groups), _knobs(knobs)
        algorithm, notes = algorithm_of(arguments)
        _warn([*notes, *left_out(not_finite(groups))])
        request = TrainGroups(
            groups=[sent_group(group) for group in groups],
            lr=arguments.learning_rate,
            algorithm=algorithm,
            save=arguments.save_checkpoint,
            key=secrets.token_hex(12),
        )
        trained = await self._link.ask(
            self._link.with_run(
                self._key(model), lambda client, run_id: client.train_outside(run_id, request)
            )
        )
        summary = summarize_trajectory_groups(groups)
        figures = build_training_summary_metrics(summary, include_trainable_groups=True)
        figures |= training_metrics(trained.metrics, trained.skipped, algorithm.updates)
        path = trained.checkpoint or None
        return LocalTrainResult(step=trained.step, metrics=figures, checkpoint_path=path)

    async def _train_sft(
        self,
        model: Any,
        trajectories: Iterable[Any],
        config: Any,
        dev_config: Any,
        verbose: bool = False,
    ) -> AsyncIterator[dict[str, float]]:
        """Raise ConfigError: supervised training is not supported."""
        raise ConfigError.of(
            "art.no_sft",
            "AtelierBackend does not train on demonstrations.",
            "Train on the demonstrations in a project with train.warmup, export the result, and "
            "set base_model to the exported folder.",
        )
        yield {}

    async def _delete_checkpoint_files(self, model: Any, steps_to_keep: list[int]) -> None:
        """Delete all checkpoints except these steps and the newest. Raises AtelierError."""

        async def delete(client: Any, run_id: str) -> None:
            kept = await client.checkpoints(run_id)
            for step in [one.checkpoint.step for one in kept][:-1]:
                if step not in steps_to_keep:
                    await client.delete_checkpoint(run_id, step)

        await self._link.ask(self._link.with_run(self._key(model), delete))

    def supports_automatic_train_step_metrics(self) -> bool:
        return True

    async def close(self) -> None:
        """Mark the runs as finished and disconnect. The engine exits when idle."""
        await self._link.close(finished=True)
        atexit.unregister(self._at_exit)
        self._keys.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Of our own

    async def _log(
        self, model: Any, split: str, step: int, groups: list[Any], values: dict[str, float]
    ) -> None:
        """Send logged metrics and, except for the split `train`, the groups."""
        sent: list[SentGroup] = [] if split == "train" else [sent_group(one) for one in groups]
        ours: Split = "train" if split == "train" else "validation"
        key = secrets.token_hex(12)
        request = LogOutside(split=ours, name=split, step=step, groups=sent, values=values, key=key)
        await self._link.ask(
            self._link.with_run(
                self._key(model), lambda client, run_id: client.log_outside(run_id, request)
            )
        )

    def _place(self, model: Any) -> tuple[str, str]:
        return self._project or model.project, model.name

    def _key(self, model: Any) -> str:
        key = self._keys.get(self._place(model))
        if key is None:
            raise Refused.of(
                "art.not_registered",
                f"{model.name} is not registered with this backend.",
                "Call `await model.register(backend)` first.",
            )
        return key

    def _at_exit(self) -> None:
        """Close the runs of a script that did not call `close`; finished unless it raised."""
        raised = getattr(sys, "last_value", None) is not None
        try:
            self._link.wait(self._link.leave(finished=not raised), CLOSING_S)
        except (AtelierError, TimeoutError) as error:
            sys.stderr.write(f"Atelier: the run could not be closed: {error}\n")


def _knobs(given: Mapping[str, Any]) -> TrainArguments:
    """Return the arguments of `train`. Raises ConfigError for names unknown to ART."""
    known = TrainArguments.__dataclass_fields__
    if unknown := [name for name in given if name not in known]:
        raise ConfigError.of(
            "art.knob",
            f"train() has no argument {unknown[0]}.",
            f"Available: {', '.join(known)}.",
            where=f"train({unknown[0]}=…)",
        )
    return TrainArguments(**given)


def _warn(sentences: Iterable[str]) -> None:
    for one in sentences:
        warnings.warn(one, UserWarning, stacklevel=3)
