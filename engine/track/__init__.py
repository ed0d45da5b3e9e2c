"""Other programs are told of a run: `items` (events → what goes out), `traces` (attempts → spans),
`feed` (one tracker of one run, from its cursor on) and, in a process and an environment of its own,
`worker` with one of `sinks`. What is stored is the truth; a tracker only ever catches up with it.
"""
