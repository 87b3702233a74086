# SPDX-License-Identifier: Apache-2.0
"""Who may ask, and how what is said stays private: the file of ``--web.config.file``.

schema reads it, load and files its files, tls makes the context; access keeps up with changes; gate
asks for passwords and slows down. The server asks it for terms, but imports nothing of it. May
import model and what is loose, and of the server its terms and counts, of web
threads and fairness.
"""
