"""Confirmations of the person on this machine: trusted projects, addresses that may get keys, and
files outside of a project. A leaf above the protocol; everything that executes, sends or reads on
behalf of a project asks it first."""
