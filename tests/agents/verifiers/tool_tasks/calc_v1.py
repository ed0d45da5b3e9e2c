"""Task set with a tool server, in the API of verifiers since 0.4."""

import verifiers.v1 as vf


class CalcData(vf.TaskData):
    answer: str


class CalcToolset(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "calc"

    @vf.tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class CalcTaskConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()


class CalcTask(vf.Task[CalcData, vf.State, CalcTaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [CalcToolset(config.tools)]

    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.metric
    async def turns(self, trace) -> float:
        return trace.num_turns


class CalcConfig(vf.TasksetConfig):
    count: int = 8
    task: CalcTaskConfig = CalcTaskConfig()


class CalcTaskset(vf.Taskset[CalcTask, CalcConfig]):
    def load(self):
        for n in range(self.config.count):
            yield CalcTask(
                CalcData(prompt=f"What is {n} + {n}?", answer=str(2 * n)), self.config.task
            )


__all__ = ["CalcTaskset"]

if __name__ == "__main__":
    CalcToolset.run()
