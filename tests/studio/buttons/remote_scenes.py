"""Button scenes of servers: list, wizard, sheet, remote runs and checkpoints."""

import time
from functools import partial
from typing import Any, get_args

from engine.protocol.requests.remote import FarEngine, HostTick, HostView
from studio.services.servers import HostAction
from tests.studio.buttons.stage import Row, Scene, Stage
from tests.studio.fakes.clusters import HOSTED, SKYRL, server_of
from tests.studio.fakes.servers import (
    BUILD,
    CODE,
    HOST_KEY,
    NOT_INSTALLED,
    OTHER_HOME,
    PASSPHRASE,
    REPORT,
    UNREACHABLE,
    view,
)

SSH = "a server that is reached over SSH, with an engine of gigabytes on it"
SKYRL_REASON = "SkyRL, an environment of gigabytes, on a server"
TINKER = "a cluster of GPUs, and the client library of its API"
RUN = "01JD5MAMBERKESTREL00000000"
BRINGING = HostTick(stage="uploading", words="torch 2.13.0", done=210_000_000, total=526_000_000)
SILENT = UNREACHABLE.model_copy(update={"code": "host.engine_silent"})
BOTH = REPORT.model_copy(
    update={"engines": [FarEngine(id=BUILD, current=True), FarEngine(id="0.0.9", previous=True)]}
)
Retrying = partial(view, state="reconnecting", failures=1)


async def set_server(stage: Stage, one: HostView) -> None:
    """Set a server's state, and wait until the window shows it. Requests of the row before, such as
    the disconnect of a closed sheet, come first: they would change the state once more."""
    servers, name = stage.backend.servers, one.spec.name
    servers.pace_s = 30.0
    jobs = ("add", *get_args(HostAction))
    await stage.session.hosts.tasks.settled(*(f"{job} {name}" for job in jobs))
    if servers.views.get(name) != one:
        servers.put(one)
    await stage.until(lambda: stage.session.hosts.view(name) == one)


async def server_list(stage: Stage, one: HostView) -> None:
    await set_server(stage, one)
    stage.studio.actions.trigger("servers.open")


async def server_sheet(stage: Stage, one: HostView) -> None:
    await set_server(stage, one)
    if not stage.studio.servers.sheet.is_open():
        stage.studio.servers.sheet.show_host(one.spec.name)


async def address(stage: Stage) -> None:
    wizard: Any = stage.studio.servers.wizard
    if not wizard.is_open():
        stage.page("settings")
        stage.studio.actions.trigger("servers.add")
    wizard._form.address.set_value("mara@annex.lab")
    wizard._form.name.set_value("annex")


async def wizard(stage: Stage, one: HostView) -> None:
    """Wizard with a server that is being added."""
    await set_server(stage, one)
    dialog: Any = stage.studio.servers.wizard
    if not dialog.is_open():
        dialog.go_on(one.spec.name)


async def prompt(stage: Stage, question: Any) -> None:
    """Connection that waits for a prompt."""
    servers = stage.backend.servers
    if not stage.dialog(""):
        fresh = question.model_copy(update={"id": f"{question.id} {time.monotonic()}"})
        servers._waiting[fresh.id] = _IgnoredAnswer()
        await set_server(stage, view(state="asking", questions=[fresh]))
    await stage.until(lambda: stage.dialog(""))


class _IgnoredAnswer:
    """Replacement of the future of a connection that waits for an answer."""

    def set_result(self, value: object) -> None:
        pass


async def run_on_server(stage: Stage, state: str = "connected", **values: Any) -> None:
    """Active run on server box, whose checkpoints are not local."""
    engine = stage.backend
    if engine.servers.lives_on.get(RUN) != "box":
        engine.servers.lives_on[RUN] = "box"
        engine._refresh(engine.runs[RUN], "inbox-scout")
        engine.checkpoints.elsewhere |= set(range(200))
        stage.session.refresh()
        await stage.until(lambda: stage.session.run.summary.host == "box")
    server = engine.servers.views.get("box")
    if server is None or server.state != state:
        await set_server(stage, view(state=state, **values))


async def away(stage: Stage) -> None:
    stage.page("run")
    await run_on_server(
        stage, "reconnecting", failures=1, retry_at=time.time() + 600, problem=UNREACHABLE
    )


async def remote_checkpoints(stage: Stage) -> Any:
    await run_on_server(stage)
    page = stage.page("checkpoints")
    await stage.until(lambda: page._model.rows and any(row.elsewhere for row in page._model.rows))
    page._list.table.selectRow(next(n for n, row in enumerate(page._model.rows) if row.elsewhere))
    return page


async def checkpoint_not_local(stage: Stage) -> None:
    await remote_checkpoints(stage)


async def fetching(stage: Stage) -> None:
    page = await remote_checkpoints(stage)
    stage.backend.servers.pace_s = 30.0
    if page._fetches.coming is None:
        page._list.fetch_wanted.emit(next(row for row in page._model.rows if row.elsewhere))
        await stage.until(lambda: page._fetches.coming is not None)


async def confirming_location(stage: Stage) -> None:
    """Evaluation of checkpoints that are not local."""
    page = await remote_checkpoints(stage)
    page._fetches.cancel()
    stage.session.hosts.choose(stage.session.project.path, "")
    if not stage.dialog("Not on this machine"):
        page._list.evaluate_wanted.emit()
        await stage.until(lambda: stage.dialog("Not on this machine"))


async def clusters(stage: Stage) -> None:
    stage.studio.actions.trigger("clusters.open")
    if not stage.session.clusters.all:
        stage.backend.clusters.put(HOSTED)
        stage.session.clusters.refresh()
        await stage.until(lambda: stage.session.clusters.all)


async def cluster_sheet(stage: Stage) -> None:
    await clusters(stage)
    sheet = stage.studio.servers.cluster_sheet
    if not sheet.is_open():
        sheet.change(HOSTED.name)


async def skyrl(stage: Stage, state: str) -> None:
    """SkyRL on a connected server as the only cluster; an empty state: the server is away."""
    stage.studio.actions.trigger("clusters.open")
    sheet = stage.studio.servers.cluster_sheet
    if sheet.is_open():
        sheet.close_sheet()
    await set_server(stage, view(state="connected" if state else "away"))
    server = server_of(SKYRL, state) if state else None
    stage.backend.clusters.views = {}
    stage.backend.clusters.put(SKYRL, server=server)
    listed = stage.session.clusters
    await listed.tasks.settled("list", "start skyrl", "stop skyrl")
    listed.refresh()
    await stage.until(lambda: [(one.spec, one.server) for one in listed.all] == [(SKYRL, server)])


async def start_sheet(stage: Stage) -> None:
    await clusters(stage)
    sheet = stage.studio.servers.start_sheet
    if not sheet.is_open():
        sheet.begin()
        sheet.place.set_value("")
        sheet.model.set_value("org/model")


async def moving(stage: Stage) -> None:
    await run_on_server(stage)
    stage.backend.servers.pace_s = 30.0
    if not stage.studio.servers.moves.is_open():
        stage.studio.servers.moves.bring_home(stage.session.run.summary)


REMOTE = [
    Scene(
        "no server",
        partial(server_list, one=view(state="away")),
        [
            Row("HostRow: Connect", "POST /hosts/box .*connect"),
            Row("HostRow._open", "shown HostSheet"),
        ],
        fake=SSH,
    ),
    Scene(
        "report",
        partial(wizard, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [
            Row("AddServerSheet._later", "hidden AddServerSheet"),
            Row("AddServerSheet._again", "POST /hosts/box .*connect"),
        ],
        fake=SSH,
    ),
    Scene(
        "report",
        partial(wizard, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [Row("AddServerSheet._back", "hidden Button Back")],
        fake=SSH,
    ),
    Scene(
        "ready",
        partial(wizard, one=view(state="connected")),
        [
            Row("ReadyStep.chosen", "checked Toggle Train this project here"),
            Row("AddServerSheet._main", "hidden AddServerSheet", "Done"),
        ],
        fake=SSH,
    ),
    Scene(
        "retrying",
        partial(server_list, one=Retrying(problem=UNREACHABLE)),
        [Row("HostRow: Retry now", "POST /hosts/box .*connect")],
        fake=SSH,
    ),
    Scene(
        "installing",
        partial(server_list, one=view(state="installing", tick=BRINGING, report=REPORT)),
        [Row("HostRow: Cancel", "POST /hosts/box .*disconnect")],
        fake=SSH,
    ),
    Scene(
        "another home",
        partial(server_list, one=view(state="stopped", problem=OTHER_HOME)),
        [Row("HostRow: Take over", "POST /hosts/box .*take_over")],
        fake=SSH,
    ),
    Scene(
        "not installed",
        partial(server_list, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [Row("HostRow: Install", "shown AddServerSheet")],
        fake=SSH,
    ),
    Scene(
        "outdated",
        partial(server_list, one=view(state="connected", outdated=True, report=BOTH)),
        [Row("HostRow: Update", "POST /hosts/box .*install")],
        fake=SSH,
    ),
    Scene(
        "sheet",
        partial(server_sheet, one=view(state="connected", outdated=True, report=BOTH)),
        [
            Row("HostSheet: Close", "hidden HostSheet"),
            Row("HostSheet._edit", "shown AddServerSheet"),
            Row("HostSheet: Update", "POST /hosts/box .*install"),
        ],
        fake=SSH,
    ),
    Scene(
        "sheet",
        partial(server_sheet, one=view(state="connected", report=BOTH)),
        [Row("HostSheet: Roll back", "POST /hosts/box .*roll_back")],
        fake=SSH,
    ),
    Scene(
        "sheet",
        partial(server_sheet, one=view(state="connected", report=BOTH, behind=1)),
        [
            Row("HostSheet: Stop engine", "shown Question Stop the engine"),
            Row("HostSheet: Remove from this server", "shown Question Remove Atelier"),
            Row("HostSheet: Remove entry", "shown Question Remove box"),
            Row("HostSheet: Disconnect", "POST /hosts/box .*disconnect"),
        ],
        fake=SSH,
    ),
    Scene(
        "sheet, away",
        partial(server_sheet, one=view(state="away")),
        [Row("HostSheet: Connect", "POST /hosts/box .*connect")],
        fake=SSH,
    ),
    Scene(
        "sheet, silent",
        partial(server_sheet, one=Retrying(problem=SILENT)),
        [Row("HostSheet: Repair", "POST /hosts/box .*install|shown AddServerSheet")],
        fake=SSH,
    ),
    Scene(
        "sheet, unreachable",
        partial(server_sheet, one=Retrying(problem=UNREACHABLE)),
        [Row("HostSheet: Retry now", "POST /hosts/box .*connect")],
        fake=SSH,
    ),
    Scene(
        "sheet, another home",
        partial(server_sheet, one=view(state="stopped", problem=OTHER_HOME)),
        [Row("HostSheet: Take over", "POST /hosts/box .*take_over")],
        fake=SSH,
    ),
    Scene(
        "sheet, nothing there",
        partial(server_sheet, one=view(state="stopped", problem=NOT_INSTALLED, report=REPORT)),
        [Row("HostSheet: Install", "shown AddServerSheet")],
        fake=SSH,
    ),
    Scene(
        "sheet, installing",
        partial(server_sheet, one=view(state="installing", tick=BRINGING, report=REPORT)),
        [Row("HostSheet: Cancel", "POST /hosts/box .*disconnect")],
        fake=SSH,
    ),
    Scene(
        "a key is shown",
        partial(prompt, question=HOST_KEY),
        [
            Row("FingerprintField._copy of Question", "copied SHA256"),
            Row("Question: Trust and connect", "POST /hosts/box/answer"),
        ],
        fake=SSH,
    ),
    Scene(
        "a passphrase is asked for",
        partial(prompt, question=PASSPHRASE),
        [
            Row("SecretField._keep of Question", "checked Toggle Store in the system keyring"),
            Row("Question: Cancel", "POST /hosts/box/answer"),
        ],
        fake=SSH,
    ),
    Scene(
        "a passphrase is typed",
        partial(prompt, question=PASSPHRASE),
        [Row("Question: Unlock", "POST /hosts/box/answer")],
        fake=SSH,
    ),
    Scene(
        "a code is asked for",
        partial(prompt, question=CODE),
        [Row("Question: Answer", "POST /hosts/box/answer")],
        fake=SSH,
    ),
    Scene(
        "clusters",
        clusters,
        [Row("ClusterRowView._test", "POST /clusters/hosted/check")],
        fake=TINKER,
    ),
    Scene(
        "cluster",
        cluster_sheet,
        [Row("ClusterSheet._test", "POST /clusters/check .*hosted")],
        fake=TINKER,
    ),
    Scene(
        "SkyRL runs",
        partial(skyrl, state="running"),
        [
            Row("ClusterRowView._copy", "copied .*skyrl.tinker.api"),
            Row("ClusterRowView._stop", "POST /clusters/skyrl/stop"),
        ],
        fake=SKYRL_REASON,
    ),
    Scene(
        "SkyRL is off",
        partial(skyrl, state="off"),
        [Row("ClusterRowView._start", "POST /clusters/skyrl/start")],
        fake=SKYRL_REASON,
    ),
    Scene(
        "the server of SkyRL is away",
        partial(skyrl, state=""),
        [Row("ClusterRowView._connect", "POST /hosts/box .*connect")],
        fake=SKYRL_REASON,
    ),
    Scene(
        "start of SkyRL",
        start_sheet,
        [Row("StartSheet._start", "POST /clusters/skyrl.*/start")],
        fake=SKYRL_REASON,
    ),
    Scene("not here", checkpoint_not_local, [Row("ListCard._fetch", "POST .*/fetch")], fake=SSH),
    Scene(
        "fetching", fetching, [Row("ListCard._stop", "hidden IconButton Stop fetching")], fake=SSH
    ),
    Scene(
        "agreeing",
        confirming_location,
        [
            Row("Question: Cancel", "hidden Question Not on this machine"),
            Row("Question: Evaluate on box", "POST /evaluations"),
            Row("Question: Fetch and continue", "POST .*/fetch"),
        ],
        fake=SSH,
    ),
    Scene(
        "moving",
        moving,
        [
            Row("MoveSheet: Close", "hidden MoveSheet"),
            Row("MoveSheet._cancel", "hidden MoveSheet", "Cancel"),
            Row("MoveSheet._go", "POST .*/bring_home"),
        ],
        fake=SSH,
    ),
    Scene("away", away, [Row("AwayBar._again", "POST /hosts/box .*connect")], fake=SSH),
    Scene(
        "address",
        address,
        [
            Row("AddServerSheet: Close", "hidden AddServerSheet"),
            Row("AddressForm._fold", "shown FormRow"),
            Row("AddServerSheet._main", "POST /hosts .*annex", "Connect"),
        ],
        fake=SSH,
    ),
]
