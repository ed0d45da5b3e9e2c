"""Button scenes of frame, Home and Settings: sidebar, header, sample gallery, dialogs, keys."""

from PySide6.QtTest import QTest

from engine.protocol.requests.clusters import ClusterSpec
from engine.trust.store import edit_record
from studio.pages.settings.api_keys import KeysCard
from studio.pages.settings.shortcuts import ShortcutList
from studio.widgets.controls.command_block import CommandBlock
from tests.studio.buttons.stage import Row, Scene, Stage
from tests.support.namespaces import NAMESPACES

CLUSTER = ClusterSpec(name="tunnel", address="http://127.0.0.1:9")


async def home(stage: Stage) -> None:
    stage.page("home")


async def in_project(stage: Stage) -> None:
    """Page of the lab's trained run."""
    await stage.open_run(stage.backend.lab, stage.backend.trained)
    stage.page("run")


async def searching(stage: Stage) -> None:
    line = stage.page("home")._search
    if not line.text():
        QTest.keyClicks(line, "lab")


async def new_project(stage: Stage) -> None:
    await stage.open_dialog("New project", "project.new", "new")


async def importing(stage: Stage) -> None:
    await in_project(stage)
    await stage.open_dialog("Import trajectories", "project.import", "import")


async def extending(stage: Stage) -> None:
    await in_project(stage)
    await stage.open_dialog("Extend ", "run.extend", "extend")


async def untrusted(stage: Stage) -> None:
    with edit_record() as record:  # an earlier row may have trusted it
        was_trusted = record.folders.pop(str(stage.backend.stranger), None)
    if was_trusted:
        await stage.open_run(stage.backend.lab)
    await stage.open_run(stage.backend.stranger)
    await stage.until(lambda: stage.studio.window.trust_bar.isVisible())
    stage.page("setup")


async def trusting(stage: Stage) -> None:
    await untrusted(stage)
    if not stage.dialog("Trust this project?"):
        stage.press("Trust this project", stage.studio.window)
        await stage.until(lambda: stage.dialog("Trust this project?"))


async def notification(stage: Stage) -> None:
    stage.page("home")
    stage.studio.notifier.say("Done.", undo=lambda: stage.session.notice.emit("Undone."))


async def settings(stage: Stage) -> None:
    stage.page("settings").show_section("engines")


async def appearance(stage: Stage) -> None:
    stage.page("settings").show_section("appearance")


async def notifications(stage: Stage) -> None:
    stage.page("settings").show_section("notifications")


async def shortcuts(stage: Stage) -> None:
    page = stage.page("settings")
    page.show_section("shortcuts")
    search = page.findChild(ShortcutList).search
    if search.text() != "theme":
        search.setText("theme")


async def machine(stage: Stage) -> None:
    stage.page("settings").show_section("machine")


async def servers(stage: Stage) -> None:
    stage.page("settings").show_section("servers")


async def clusters(stage: Stage) -> None:
    """Cluster that was added, in the list of Settings."""
    stage.page("settings").show_section("clusters")
    listed = stage.session.clusters
    if listed.view(CLUSTER.name) is None:
        await stage.session.client.put_cluster(CLUSTER)
        listed.refresh()
        await stage.until(lambda: listed.view(CLUSTER.name))


async def cluster_sheet(stage: Stage) -> None:
    await clusters(stage)
    sheet = stage.studio.servers.cluster_sheet
    if not sheet.is_open():
        sheet.change(CLUSTER.name)
        await stage.until(lambda: not stage.session.clusters.tasks.busy("key"))


async def start_sheet(stage: Stage) -> None:
    """Sheet that starts SkyRL on one node."""
    await clusters(stage)
    sheet = stage.studio.servers.start_sheet
    if not sheet.is_open():
        sheet.begin()


async def several_nodes(stage: Stage) -> None:
    """Commands that start SkyRL by hand on two nodes."""
    await start_sheet(stage)
    sheet = stage.studio.servers.start_sheet
    if sheet.nodes.value() == 1:
        sheet.model.set_value("org/model")
        sheet.nodes.editor.stepUp()
        await stage.until(lambda: sheet.findChildren(CommandBlock))


async def typed_key(stage: Stage) -> None:
    """API key in the field of a card."""
    page = stage.page("settings")
    page.show_section("keys")
    card = page.findChildren(KeysCard)[0]
    if not card._key.value():
        QTest.keyClicks(card._key.editor, "sk-x")


FRAME = [
    Scene(
        "home",
        home,
        [
            Row("Sidebar._rows[models]", "page models"),
            Row("Sidebar._rows[settings]", "page settings"),
            Row("PageHeader: New project", "shown Question New project"),
            Row("PageHeader: Open folder", "shown QFileDialog Open a project folder"),
            Row("PageHeader.pill", "shown QMenu This machine"),
            Row("SampleGallery: New from verifiers or Inspect…", "shown EnvironmentSheet"),
            Row("SampleGallery: New from a description…", "shown DescribeSheet"),
        ],
    ),
    Scene(
        "searching",
        searching,
        [Row("SearchInput._clear of HomePage", "words SearchInput lab -> $")],
    ),
    Scene(
        "new project",
        new_project,
        [
            Row("Question: Cancel", "hidden Question New project"),
            Row("Question: Create project", "POST /projects .*my-agent"),
        ],
    ),
    Scene(
        "in project",
        in_project,
        [
            Row("Sidebar._rows[runs]", "page runs"),
            Row("Sidebar._rows[setup]", "page setup"),
            Row("Sidebar._rows[judge]", "page judge"),
            Row("Sidebar._rows[trajectories]", "page trajectories"),
            Row("Sidebar._rows[checkpoints]", "page checkpoints"),
            Row("PageHeader._run", "shown QMenu .* · "),
            Row("PageHeader._branch", "shown BranchSheet"),
            Row("PageHeader.train", "shown Question Extend ", "Train more"),
            Row("Sidebar._rows[home]", "page home"),
        ],
    ),
    Scene(
        "extending",
        extending,
        [
            Row("Question: Cancel", "hidden Question Extend"),
            Row("Question: Extend", "POST .*/command .*extend", rest=True),
        ],
    ),
    Scene(
        "importing",
        importing,
        [
            Row("Question: Cancel", "hidden Question Import trajectories"),
            Row("ImportOptions._mask", "checked Toggle Mask personal data"),
            Row("Question: A file…", "shown QFileDialog Import a trajectory file"),
            Row("Question: An .art folder…", "shown QFileDialog Import an .art folder"),
        ],
    ),
    Scene(
        "said",
        notification,
        [
            Row("Toast._undo", "words Phrase Done. -> Undone."),
            Row("Toast._close", "hidden Toast Done."),
        ],
    ),
    Scene("untrusted", untrusted, [Row("TrustBar.button", "shown Question Trust this project")]),
    Scene(
        "trusting",
        trusting,
        [
            Row("Question: Cancel", "hidden Question Trust this project"),
            Row("Question: Trust this project", "POST /confirmations .*stranger"),
            *([Row("Question: Trust in a sandbox", "PUT /project .*agent.sandbox")] * NAMESPACES),
        ],
    ),
    Scene(
        "settings",
        settings,
        [
            Row("Sidebar._rows[home]", "page home"),
            Row("PathField: Browse of SettingsPage", "shown QFileDialog Choose a Python"),
            Row("Card: Reconnect of SettingsPage", "GET /proof"),
        ],
    ),
    Scene(
        "appearance",
        appearance,
        [
            Row("SettingsPage._motion", "unchecked Toggle Reduce motion"),
            Row("SettingsPage._motion", "checked Toggle Reduce motion"),
        ],
    ),
    Scene(
        "notifications",
        notifications,
        [
            Row("SettingsPage._desktop", "unchecked Toggle Show desktop"),
            Row("SettingsPage._desktop", "checked Toggle Show desktop"),
        ],
    ),
    Scene(
        "shortcuts",
        shortcuts,
        [Row("SearchInput._clear of ShortcutList", "words SearchInput theme -> $")],
    ),
    Scene("machine", machine, [Row("SettingsPage._check_button", "GET /doctor")]),
    Scene(
        "servers", servers, [Row("CardHeader: Add a server of ServersCard", "shown AddServerSheet")]
    ),
    Scene(
        "clusters",
        clusters,
        [
            Row("ClustersCard._add", "shown ClusterSheet"),
            Row("ClustersCard._start", "shown StartSheet"),
            Row("ClusterRowView._edit", "shown ClusterSheet"),
            Row("ClusterRowView._remove", "shown Question Remove tunnel from the list"),
        ],
    ),
    Scene(
        "cluster",
        cluster_sheet,
        [
            Row("ClusterSheet: Close", "hidden ClusterSheet"),
            Row("ClusterSheet._save", "PUT /clusters .*tunnel"),
        ],
    ),
    Scene(
        "start of SkyRL",
        start_sheet,
        [Row("StartSheet._fold", "shown FormRow"), Row("StartSheet: Close", "hidden StartSheet")],
    ),
    Scene(
        "SkyRL on several nodes",
        several_nodes,
        [
            Row("CommandBlock._copy of StartSheet", "copied "),
            Row("StartSheet._add", "shown ClusterSheet"),
        ],
    ),
    Scene(
        "typed key",
        typed_key,
        [
            Row("KeysCard._keep", "words Text No key for .* -> A key for .* is stored"),
            Row("KeysCard._forget", "words Text A key for .* -> No key for"),
        ],
    ),
]
