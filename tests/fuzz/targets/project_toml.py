"""Project files: settings, or problems with their lines; files and addresses are checked."""

from pathlib import Path

from engine.protocol.problems import AtelierError
from engine.storage.project import edit_text, load_config, read_toml
from engine.trust.addresses import address_problems
from engine.trust.files import file_problems, named_files, project_file

REFUSALS = (AtelierError,)


def seeds() -> list[bytes]:
    return [
        b'name = "x"\n[judge]\nenabled = true\nmodels = ["openai/x"]\nbase_url = "http://a.b/v1"\n'
        b'rubric = "rubric.md"\n[train]\nsteps = 3\nlr = 1e-4\n',
        b'[agent]\nfile = "../agent.py"\ncommand = "x"\n[scenarios]\ntrain = "a/b.jsonl"\n'
        b'[train.warmup]\nfile = "/etc/passwd"\n[track.wandb]\non = true\nhost = "http://h"\n',
        b'[[reward.constraints]]\npart = "a"\nabove = 1\n[train.algorithm]\npreset = "art"\n',
    ]


def execute(data: bytes, folder: Path) -> None:
    (folder / "project.toml").write_bytes(data)
    (folder / "link").symlink_to("/etc/passwd")
    config = load_config(folder)
    file_problems(folder, config)
    address_problems(config)
    for setting, name in named_files(config):
        try:
            file = project_file(folder, name, setting)
        except AtelierError:
            continue
        assert file.is_relative_to(folder.resolve())
    edit_text(read_toml(folder), {"train.steps": 4})
