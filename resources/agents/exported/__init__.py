from .harness import ProjectEnv, ProjectHarness
from .taskset import ProjectTaskset

__all__ = ["ProjectEnv", "ProjectHarness", "ProjectTaskset"]
