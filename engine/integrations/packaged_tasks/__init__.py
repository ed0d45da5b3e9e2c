"""Projects made of packaged tasks: what the bridges to `verifiers` and `inspect` share. The
libraries themselves run in the environment of the agent.
"""
