"""Services of the studio: session, servers, API keys, settings, notifications. Imported by pages
and above."""
