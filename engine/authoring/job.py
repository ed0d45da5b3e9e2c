"""One writing from beginning to end, for who asks: server or command line."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.authoring.place import asking
from engine.authoring.write import Writing
from engine.judge.access import Access
from engine.judge.ledger import Ledger
from engine.judge.provider import Provider
from engine.protocol.authoring import DescribeTask
from engine.run import Run


@asynccontextmanager
async def writing(wanted: DescribeTask, run: Run, access: Access) -> AsyncIterator[Writing]:
    """Ready to `tell`; its process is gone when the block ends. Raises ConfigError where the price
    of the writer is not known."""
    config = asking(wanted.writer)
    provider = await Provider.start(config, access, run.log_file)
    try:
        yield Writing(wanted, provider, Ledger(run, provider, config))
    finally:
        await provider.close()
