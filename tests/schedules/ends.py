"""What workers say when they end: parts of errors that `Faults.warrants` looks for."""

from __future__ import annotations

REFUSAL = "RewoundError: "
OLDER = ("does not hold the position", "was never charged by this ledger", "are not declared: run",
         "is not in the ledger yet", "hush topics --grow", "as the ledger sealed it")  # fmt: skip
"""In refusals of a worker that asks leaders of before of some partitions, and not of others."""
FORGOTTEN = "was forgotten"
"""In a refusal: the cluster was set back, and the key of an epoch is gone."""
GONE = "it was deleted before it was applied"
"""In a refusal: the cluster was set back, and who knew that has trimmed it and lost its disk."""
AWAY = ("no broker for", "no Kafka answers", "stopped answering")
"""In errors of a worker that has waited in vain for brokers."""
UNASSIGNED = "no partitions were assigned for"
CLOCKS = "the clock of this machine"
REGISTRY = "the schema registry for"
UNSTOPPED = "the worker did not stop"
LATE = ("a barrier is missing", "the clock log of pipeline")  # said by a stage that has begun
