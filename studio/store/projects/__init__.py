"""State of a project: configuration, checks, drafts, environments, rubric. Imported by models,
services and above."""
