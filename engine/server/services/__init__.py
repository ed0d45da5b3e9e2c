"""Services behind the routes: run queue and lifecycle, evaluations, exports, judges, environments.

Imported by `server.routes` and `server.app`.
"""
