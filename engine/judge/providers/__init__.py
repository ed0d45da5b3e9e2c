"""Access to judge models: the process that holds API keys, the ledger of cost, local servers.

Imported by `judge`, `evaluation`, `remote` and `autorl`.
"""
