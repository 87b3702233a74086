# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboards as Python: ``python -m dashboards`` writes the JSON that is committed."""
