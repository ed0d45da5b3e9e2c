"""Upload to a hub stub."""

import subprocess
import sys
from pathlib import Path

from tests.engine.export.hub import hub

CODE = """
import sys
from pathlib import Path
from engine.export.torch.serve import push
from engine.protocol.problems import Refused
try:
    print(push(Path(sys.argv[1]), "me/it", sys.stdin.read()))
except Refused as error:
    print(error.problem.code, error)
"""


def push_folder(url: str, folder: Path, token: str, home: Path) -> str:
    environment = {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(folder)],
        input=token, capture_output=True, text=True, timeout=60,
        env={**environment, "PATH": "/usr/bin:/bin"}, cwd=Path(__file__).parents[4],
    )  # fmt: skip
    assert token not in done.stdout + done.stderr
    return done.stdout.strip()


def test_uploaded_files_arrive_and_the_token_is_not_stored(tmp_path: Path) -> None:
    folder, home = tmp_path / "out", tmp_path / "home"
    folder.mkdir()
    contents = {
        "model.safetensors": b"\x00\x01weights" * 9,
        "README.md": b"# card",
        "a.json": b"{}",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    with hub("hf_secret") as server:
        assert push_folder(server.url, folder, "hf_secret", home) == f"{server.url}/me/it"
        assert server.files == contents
        assert server.repos[0]["visibility"] == "private"
        words = push_folder(server.url, folder, "hf_wrong", home)
        assert words.startswith("export.not_pushed")
        assert server.refused > 0
    stored = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert b"hf_secret" not in stored
