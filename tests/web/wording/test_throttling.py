# SPDX-License-Identifier: Apache-2.0
"""What holds a clock down, in words."""

from __future__ import annotations

import re

from exporter.model.reading import THROTTLE_REASONS
from exporter.web.wording.phrases import THROTTLE_WORDS, throttle_words, throttled_by


def test_every_reason_has_words_without_abbreviations() -> None:
    """Those that the driver may give, and no others."""
    assert tuple(THROTTLE_WORDS) == THROTTLE_REASONS
    assert throttle_words("sw_power_cap") == "software power cap"
    assert not [words for words in THROTTLE_WORDS.values() if re.search(r"\b[sh]w\b|_", words)]
    assert throttle_words("of_a_newer_driver") == "of a newer driver"


def test_bits_are_reasons_in_their_order() -> None:
    """Each bit alone, all of them, and none."""
    for bit, reason in enumerate(THROTTLE_REASONS):
        assert throttled_by(1 << bit) == [THROTTLE_WORDS[reason]]
    assert throttled_by((1 << len(THROTTLE_REASONS)) - 1) == list(THROTTLE_WORDS.values())
    assert throttled_by(0) == []
