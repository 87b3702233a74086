# SPDX-License-Identifier: Apache-2.0
"""``run --with-daemon``: a job beside a daemon of its own, and the report at its end."""
