# SPDX-License-Identifier: Apache-2.0
"""The state of NCCL's ranks, from its RAS (reliability, availability, serviceability) port."""
