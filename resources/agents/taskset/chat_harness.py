"""Harness of `verifiers` for conversations: the model answers in this process.

If a task has tools, the library's own chat program runs instead, by this interpreter.
"""

import sys

from openai import AsyncOpenAI
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]


class OwnInterpreter:
    """A runtime that runs scripts by this interpreter, which has their packages; the library would
    download an environment for each."""

    def __init__(self, runtime):
        self._runtime = runtime

    def __getattr__(self, name):
        return getattr(self._runtime, name)

    async def prepare_uv_script(self, script, env=None, *, activate=True):
        await self._runtime.write("program.py", script.encode())
        return [sys.executable, "program.py"]


class ChatHarness(NullHarness):
    async def setup(self, runtime):
        pass

    async def launch(
        self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None
    ):
        if mcp_urls:
            return await super().launch(
                ctx,
                trace,
                OwnInterpreter(runtime),
                endpoint,
                secret,
                mcp_urls,
                data,
                tool_interception_url,
            )
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return ProgramResult(exit_code=0, stdout="", stderr="")
