# SPDX-License-Identifier: Apache-2.0
"""TLS, passwords and rate limit: the file of ``--web.config.file``.

config.py has its schema, tls.py makes the TLS context, auth.py asks for
passwords, reload.py reads the files again when they change. May import model and what is loose, and
of web the server's protocol and counts, threads, fairness and responses.
"""
