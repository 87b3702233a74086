# SPDX-License-Identifier: Apache-2.0
"""Accepts connections, limits what each may hold and for how long, and passes requests on.

server.py is uvicorn's server with a door of its own (door.py). connection.py is one connection: it
takes one head at a time (heads.py) and sends answers in pieces (outlet.py). Who is overdue, and who
makes room for another, is decided in standing.py by the numbers of limits.py; what was refused is
counted in counts.py. hosts.py asks whether a request is meant for this node.
"""
