"""Policy: the model being trained, able to sample and to learn, behind one interface
(`base.Policy`).

Imported by `rollout`, `training`, `evaluation` and above.
"""
