"""Trust of the person on this machine: trusted projects, addresses that may receive API keys, and
files outside of a project. Depends only on the protocol. Checked by all code that executes, sends
or reads for a project."""
