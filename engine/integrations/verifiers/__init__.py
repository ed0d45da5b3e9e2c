"""Bridge to environments of the library `verifiers`: projects made of them, and projects exported
as one. Imported by `server` and `cli`; the library itself runs in the environment of the agent.
"""
