"""Keys of (slot, bucket) pairs, which `slots` makes together with the values."""

from __future__ import annotations

import numpy as np
from hushstream.mechanisms.columns import I64
from hushstream.mechanisms.keys import Keys
from hushstream.mechanisms.slots.slots import BUCKETS


def join(slot: I64, bucket: I64) -> Keys:
    """Keys of (slot, bucket) pairs, ordered as the pairs are."""
    return Keys.of_codes((slot * BUCKETS + bucket).astype(np.uint64))
