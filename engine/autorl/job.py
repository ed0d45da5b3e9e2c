"""Writing of a draft from start to end, for server and command line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.autorl.draft_folder import judge_config_of
from engine.autorl.writer import DraftWriter
from engine.judge.providers.access import Access
from engine.judge.providers.client import Provider
from engine.judge.providers.ledger import Ledger
from engine.protocol.requests.drafts import DescribeTask
from engine.runtime.closing import closing
from engine.storage.run_folder.run import Run


@asynccontextmanager
async def open_writer(wanted: DescribeTask, run: Run, access: Access) -> AsyncIterator[DraftWriter]:
    """Ready to `tell`; its process is gone when the block ends. Raises ConfigError where the price
    of the writer is not known."""
    config = judge_config_of(wanted.writer)
    async with closing(await Provider.start(config, access, run.log_file)) as provider:
        yield DraftWriter(wanted, provider, Ledger(run, provider, config))
