"""A simulation that runs the real code under a seeded scheduler.

| module | contents |
|---|---|
| `loop` | an event loop that owns time; processes that may be paused and killed |
| `broker`, `log` | Kafka in memory: topics, transactions, fencing; the records of a partition |
| `network` | requests to the broker: outages, lost answers, requests that come late or twice |
| `clients`, `admin` | the clients of both libraries, as far as the product uses them |
| `group` | the consumer group, and a stand-in for Faust |
| `standing` | the same for workers that keep copies of each other's tables |
| `disk` | tables that outlive their process |
| `world` | all of that together, and the product's view of time |
| `patches` | the places where libraries are replaced; the product's modules stay unchanged |
| `deployments` | small deployments, each begun once |
| `operator` | generations and growth, by the real `hush topics` |
| `registry`, `keys` | a schema registry; files of ratchets |
| `rewind` | a cluster that is reset to an earlier state |
| `machine`, `faults` | workers with their supervisors and disks, and what happens to them |
| `isolation` | faults that separate workers, brokers and leaders |
| `draws` | which faults a seed draws, and when they begin |
| `schedule` | one seed from its start to its verdict |
| `verdict` | what the result must be, by `tests/judge` and by counting |
| `recipe` | a schedule in writing: a seed and the changes to its choices |
| `coverage` | states of the protocol that a schedule passes through |
| `guided`, `shrink` | a search for new states; the smallest schedule that still objects |
| `campaign` | many seeds over several processes |
| `bugs`, `standing_bugs` | old mistakes, put back one at a time; mistakes of copies |
"""
