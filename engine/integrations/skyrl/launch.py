"""SkyRL's API server in its own environment: `PYTHON launch.py LIFE --base-model … --port …`, with
the descriptor of a life pipe: it ends, and its engine, when the program that started it exits.

Standard library and SkyRL only. Two changes to SkyRL 0.3: on Python below 3.12 its types need the
TypedDict of typing_extensions, and its engine is started with this interpreter instead of `uv run`.
"""

import argparse
import runpy
import sys
import typing
from pathlib import Path
from typing import Any

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]

HERE = Path(__file__).resolve()
ENGINE = "engine"
"""First argument of the process that computes."""


def serve(arguments: list[str]) -> None:
    """Run the API server on 127.0.0.1, and its engine as a child process."""
    import uvicorn
    from skyrl.tinker import api, config

    def command(parent: list[str], settings: Any) -> list[str]:
        return [sys.executable, str(HERE), ENGINE, *config.config_to_argv(settings)]

    api._build_uv_run_cmd_engine = command
    parser = argparse.ArgumentParser()
    config.add_model(parser, config.EngineConfig)
    parser.add_argument("--port", type=int, required=True)
    values = vars(parser.parse_args(arguments))
    port = values.pop("port")
    api.app.state.engine_config = config.EngineConfig.model_validate(values)
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


def main() -> None:
    if sys.argv[1] == ENGINE:
        from skyrl.tinker import engine

        del sys.argv[1]
        engine.main()
        return
    life = runpy.run_path(str(HERE.parents[2] / "runtime" / "life_pipe.py"))
    life["exit_with_engine"](int(sys.argv[1]))
    serve(sys.argv[2:])


if __name__ == "__main__":
    main()
