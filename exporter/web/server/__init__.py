# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for the daemon's ASGI application.

protocol.py is one connection: request_framing.py parses a head, exchange.py runs the application,
tls.py encrypts. server.py accepts, and ends connections that have timed out (limits.py). counts.py
counts refusals.
"""
