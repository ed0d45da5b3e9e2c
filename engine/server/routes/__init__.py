"""HTTP routes: parse the request, call a service, encode the response.

Imported by `server.app`.
"""
