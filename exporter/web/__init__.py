# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the daemon.

Connections and their limits (server), TLS and passwords (access), pages (page), what they show
(live), its words (wording), the JSON API (api), files (static), metrics, health, and the last
minutes (store, history, columns). threads runs blocking functions; fairness queues by client.
May import model, specs, derive and exposition.
"""
