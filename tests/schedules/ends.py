"""Parts of workers' last errors; `Faults.warrants` looks for them."""

from __future__ import annotations

REFUSAL = "RewoundError: "
TRIMMED = "were deleted before they were used"
"""In a refusal: raw records that a lost state had applied were deleted, as they may be."""
UNPAID = "was never charged by this ledger"
"""In a refusal: the ledger, or a former leader of it, lacks charges that the clock log names."""
OLDER = ("does not hold the position", UNPAID, "are not declared: run",
         "is not in the ledger yet", "hush topics --grow", "as the ledger sealed it",
         TRIMMED, "was made or made anew")  # fmt: skip
"""In refusals of a worker that asks former leaders about some partitions and not others."""
FORGOTTEN = "was forgotten"
"""In a refusal: the cluster was set back, and an epoch's key is gone."""
GONE = "it was deleted before it was applied"
"""In a refusal: the cluster was set back; the worker that knew it trimmed it and lost its disk."""
AWAY = ("no broker for", "no Kafka answers", "stopped answering")
"""In errors of a worker that waited too long for brokers."""
UNASSIGNED = "no partitions were assigned for"
CLOCKS = "the clock of this machine"
REGISTRY = "the schema registry for"
UNSTOPPED = "the worker did not stop"
UNCOUNTED = "between its stages"
"""In a refusal: a frame is missing or came twice, because one log alone has lost its end."""
MISSTATED = "were charged by then"
"""In a refusal: a trigger was fired again, after later epochs had been charged."""
OF_ONE = TRIMMED, UNCOUNTED, UNPAID, MISSTATED
"""In refusals of a cluster of which one log alone has lost its end."""
LATE = ("a barrier is missing", "the clock log of pipeline", UNCOUNTED)
"""Errors of a stage that has begun: late for a cluster that was set back as a whole."""
