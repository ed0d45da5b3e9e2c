"""Conditions of `ActionSpec.when` that hold for a session."""

from engine.protocol.records.runs import ACTIVE_STATES, TRAINING_KINDS
from studio.services.session import Session


def conditions(session: Session) -> set[str]:
    """Return the conditions of `ActionSpec.when` that engine, project and selected run meet now."""
    run = session.run.summary
    host = session.hosts.chosen(session.project.path)
    remote = run is not None and bool(run.host)
    still = (*ACTIVE_STATES, "queued", "damaged")
    movable = session.connected and run is not None and run.state not in still
    facts = {
        "server": session.connected and bool(host or remote),
        "lendable": session.connected
        and session.project.trainable
        and bool(host)
        and session.judged,
        "remote": movable and remote,
        "sendable": movable and not remote and bool(session.hosts.all),
        "engine": session.connected,
        "project": session.project.view is not None,
        "trainable": session.connected and session.project.trainable,
        "run": run is not None,
        "damaged": session.connected and run is not None and run.state == "damaged",
        "living": run is not None and run.state in ACTIVE_STATES,
        "stoppable": run is not None and run.state in (*ACTIVE_STATES, "queued"),
        "branchable": session.connected
        and run is not None
        and run.kind in ("train", "sft")
        and run.state != "damaged"
        and bool(session.run.state.spec),
        "readable": session.connected and run is not None and run.state != "damaged",
        "branched": session.connected
        and run is not None
        and run.parent is not None
        and session.runs.known(run.parent.run_id),
        "trackable": session.connected
        and run is not None
        and run.state != "damaged"
        and run.kind in (*TRAINING_KINDS, "baseline"),
        "resumable": run is not None
        and (run.state in ("stopped", "failed", "paused"))
        and (run.kind in ("train", "sft", "evaluation") or run.state == "paused"),
        "extendable": run is not None and run.kind == "train" and run.state != "damaged",
    }
    return {name for name, holds in facts.items() if holds}
