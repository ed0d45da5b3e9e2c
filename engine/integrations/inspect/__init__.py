"""Bridge to Inspect (the library `inspect_ai`): projects made of its tasks, and evaluations written
in its log format. Imported by `server` and `cli`; the library itself runs in the environment of
the agent.
"""
