"""A simulation of the real code under a seeded scheduler.

| module | what it holds |
|---|---|
| `loop` | an event loop that owns time; processes that may be paused and die |
| `broker`, `log` | Kafka in memory: topics, transactions, fencing; the records of a partition |
| `network` | requests on their way to it: outages, lost answers, requests that come late or twice |
| `clients`, `admin` | the clients of both libraries, as the product uses them |
| `group` | the consumer group, and what stands for Faust |
| `standing` | both where workers keep copies of each other's tables |
| `disk` | tables that outlive their process |
| `world` | all of that together, and the product's view of time |
| `patches` | where libraries are replaced; the product's modules stay as they are |
| `deployments` | small deployments, begun once |
| `operator` | generations and growth, with `hush topics` as it is |
| `registry`, `keys` | a schema registry; files of ratchets |
| `rewind` | a cluster that comes back from an earlier moment |
| `machine`, `faults` | workers with their supervisors and disks, and what happens to them |
| `draws` | which faults a seed draws, and when they begin |
| `schedule` | one seed from its beginning to its verdict |
| `verdict` | what must have come of it, judged by `tests/judge` and by counting |
| `recipe` | a schedule in writing: a seed, and what was changed of what it decides |
| `coverage` | states of the protocol that a schedule passes through |
| `guided`, `shrink` | a search for new states; the smallest schedule that still objects |
| `campaign` | many seeds over several processes |
| `bugs`, `standing_bugs` | old mistakes, put back one at a time; those of copies |
"""
