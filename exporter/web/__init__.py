# SPDX-License-Identifier: Apache-2.0
"""The HTTP side of the daemon.

Connections and their limits (server), who may ask (access), pages (page), what they show (live),
its words (wording), the JSON (api), files (static), and beside them metrics, health, and the last
minutes (store, history, columns). threads runs what takes long; fairness says who counts as one.
May import model, exposition and specs.
"""
