----------------------------- MODULE Hushstream -----------------------------
(* The protocol of one pipeline: ledger, clock log, two shards and their     *)
(* changelogs, transactions and their epochs, local tables, nonces, a        *)
(* cluster that is rewound. README.md maps each action to its function.      *)
(*                                                                           *)
(* One raw partition holds records of one privacy unit. The shard "bound"    *)
(* takes them in log order, at most Bound an epoch, and writes them to the   *)
(* cells log, with a barrier after each cut. The shard "sums" adds them up,  *)
(* closes a trigger at its barrier, and releases it. A step is a transaction *)
(* in three parts: outputs, changelog, end.                                  *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Workers,  \* a set of at most two
    Raw,      \* records that producers write
    Floor,    \* records that were there before the deployment: they do not count
    Triggers, \* number of triggers
    Each,     \* triggers of an epoch
    Bound,    \* records of the unit that count in an epoch
    Crashes,  \* faults of each worker
    Faults,   \* of "torn", "late", "rewind", "refuse", "old", "jump": what may happen
    Mistake   \* "" or what is done wrong

Alike == Permutations(Workers)  \* no worker differs from another
Shards == {"bound", "sums"}
None == [no |-> TRUE]

VARIABLES
    raw,      \* records in the raw log: the history of the cluster that each belongs to
    ledger,   \* charges, in order: [epoch, salt]; the salt stands for the chain hash
    clock,    \* triggers, in order: [cut, charge]
    cells,    \* what "bound" wrote: [v, open]
    rel,      \* what "sums" wrote: [v, open]
    log,      \* changelog of each shard: [v: state, tx, open]
    late,     \* whether a request to commit in the newest epoch may still arrive, of each shard
    owner,    \* worker that each shard is assigned to
    mem,      \* of each worker and shard: None, or [live: its epoch is the newest, st, part, ...]
    table,    \* likewise: None, or what the disk has: [st, tx, genesis]
    crashes,  \* faults that are left of each worker
    seen,     \* everything that was ever readable of releases, also of aborted attempts
    halted,   \* workers that refuse to go on
    saved,    \* a copy of the cluster's logs, None, or that it was used
    trimmed,  \* place in the cells log below which it was deleted
    clockup,  \* whether the clock has an owner
    jumped    \* whether a wall clock was set back

vars == <<raw, ledger, clock, cells, rel, log, late, owner, mem, table, crashes, seen, halted,
          saved, trimmed, clockup, jumped>>
logs == <<raw, ledger, clock, cells, rel, log>>
workers == <<owner, mem, table, crashes, halted>>
rest == <<seen, saved, trimmed, clockup, jumped>>
Age == IF "used" \in DOMAIN saved THEN 1 ELSE 0  \* of the cluster's history

----------------------------------------------------------------------------
(* What should come out: a function of raw log, clock log and ledger.         *)

EpochOf(n) == (n - 1) \div Each + 1
Cut(n) == IF n = 0 THEN Floor ELSE clock[n].cut
First(n) == (EpochOf(n) - 1) * Each + 1  \* the first trigger of its epoch
Id(i) == <<raw[i], i>>  \* a record: another history has another one in its place
Accepted(n) ==  \* records of trigger n: in log order, as long as the epoch's bound lasts
    {Id(i) : i \in {j \in (Cut(n - 1) + 1)..Cut(n) : j <= Cut(First(n) - 1) + Bound}}

Done(l) == {i \in 1..Len(l) : ~l[i].open}
Stable(l) == {i \in Done(l) : \A j \in 1..i : ~l[j].open}  \* what readers of committed records see
Released(n) == {i \in Done(rel) : rel[i].v.trigger = n}
Last(S) == CHOOSE i \in S : \A j \in S : j <= i
Aborted(l) == SelectSeq(l, LAMBDA one : ~one.open)
Ended(l) == [i \in 1..Len(l) |-> [l[i] EXCEPT !.open = FALSE]]
(* A changelog is compacted; without rewinds nobody asks for older markers.  *)
Compacted(l) == IF "rewind" \in Faults \/ l = <<>> THEN l ELSE <<l[Len(l)]>>

----------------------------------------------------------------------------
(* States of the shards, which their changelogs repeat, and their next step: *)
(* [st, out]; out is None or what is written.                                *)

Start(s) == IF s = "bound"
    THEN [at |-> IF Mistake = "floor" THEN 0 ELSE Floor, trigger |-> 0, spent |-> 0]
    ELSE [at |-> 0, sum |-> {}, closed |-> 0, content |-> {}, nonce |-> 0, out |-> 0]

NextOfBound(st) ==
    IF st.trigger >= Len(clock) THEN None
    ELSE IF st.at < clock[st.trigger + 1].cut
    THEN LET i == st.at + 1 IN
         IF st.spent < Bound
         THEN [st |-> [st EXCEPT !.at = i, !.spent = @ + 1], out |-> [rec |-> Id(i)]]
         ELSE [st |-> [st EXCEPT !.at = i], out |-> None]
    ELSE LET n == st.trigger + 1 IN
         [st |-> [st EXCEPT !.trigger = n, !.spent = IF n % Each = 0 THEN 0 ELSE @],
          out |-> [barrier |-> n]]

NextOfSums(st, nonce) ==
    IF st.closed > Len(clock) THEN None  \* a state of another history
    ELSE IF st.out < st.closed  \* close, then release
    THEN [st |-> [st EXCEPT !.out = st.closed, !.content = {}],
          out |-> [trigger |-> st.closed, content |-> st.content, nonce |-> st.nonce,
                   charge |-> clock[st.closed].charge]]
    ELSE LET ready == {i \in Stable(cells) : i > st.at} IN
         IF ready = {} \/ st.at < trimmed THEN None
         ELSE LET v == cells[st.at + 1].v IN
              IF "rec" \in DOMAIN v
              THEN [st |-> [st EXCEPT !.at = @ + 1, !.sum = @ \cup {v.rec}], out |-> None]
              ELSE [st |-> [st EXCEPT !.at = @ + 1, !.closed = v.barrier, !.content = st.sum,
                                      !.sum = {}, !.nonce = nonce],
                    out |-> None]

NextOf(s, m) == IF s = "bound" THEN NextOfBound(m.st) ELSE NextOfSums(m.st, m.nonce)

(* Random names are those that nothing has yet.                              *)
Fresh(S) == CHOOSE n \in 1..(Cardinality(S) + 1) : n \notin S
Copies == IF "logs" \in DOMAIN saved THEN {saved.logs[6]} ELSE {}
TxNames(s) ==
    UNION {{l[s][i].tx : i \in 1..Len(l[s])} : l \in {log} \cup Copies}
    \cup {table[w][s].tx : w \in {v \in Workers : table[v][s] # None}}
States == UNION {{l["sums"][i].v : i \in 1..Len(l["sums"])} : l \in {log} \cup Copies}
    \cup {table[w]["sums"].st : w \in {v \in Workers : table[v]["sums"] # None}}
Nonces == {r.nonce : r \in seen} \cup {st.nonce : st \in States}
    \cup {mem[w]["sums"].nonce : w \in {v \in Workers : mem[v]["sums"] # None}}

----------------------------------------------------------------------------
Init ==
    /\ raw = [i \in 1..Floor |-> 0]
    /\ ledger = <<>> /\ clock = <<>> /\ cells = <<>> /\ rel = <<>>
    /\ log = [s \in Shards |-> <<>>] /\ late = [s \in Shards |-> FALSE]
    /\ owner \in [Shards -> Workers]
    /\ mem = [w \in Workers |-> [s \in Shards |-> None]]
    /\ table = [w \in Workers |-> [s \in Shards |->
         IF "old" \in Faults  \* left by a deployment of the same name
         THEN [st |-> [Start(s) EXCEPT !.at = Floor + 1], tx |-> 0, genesis |-> 0] ELSE None]]
    /\ crashes = [w \in Workers |-> Crashes]
    /\ seen = {} /\ halted = {} /\ saved = None /\ trimmed = 0
    /\ clockup = TRUE /\ jumped = FALSE

Produce ==
    /\ Len(raw) < Floor + Raw /\ Len(clock) < Triggers
    /\ raw' = Append(raw, Age)
    /\ UNCHANGED <<ledger, clock, cells, rel, log, late, workers, rest>>

(* One transaction of the clock's owner: the charge, unless the epoch has    *)
(* one, and the trigger with its cut.                                        *)
Trigger ==
    /\ clockup /\ Len(clock) < Triggers
    /\ LET n == Len(clock) + 1
           paid == {i \in 1..Len(ledger) : ledger[i].epoch = EpochOf(n)}
           charge == IF paid = {} THEN <<Age, n>> ELSE ledger[Last(paid)].salt
       IN /\ clock' = Append(clock, [cut |-> Len(raw), charge |-> charge])
          /\ ledger' = IF paid = {} /\ Mistake # "unpaid"
                       THEN Append(ledger, [epoch |-> EpochOf(n), salt |-> charge]) ELSE ledger
    /\ UNCHANGED <<raw, cells, rel, log, late, workers, rest>>

----------------------------------------------------------------------------
(* Transactions. InitProducerId aborts what is open and begins a new epoch,  *)
(* so that requests of the one before are refused.                           *)

EndAll(s, End(_)) ==
    /\ log' = [log EXCEPT ![s] = Compacted(End(@))]
    /\ IF s = "bound" THEN cells' = End(cells) /\ UNCHANGED rel
                      ELSE rel' = End(rel) /\ UNCHANGED cells
Forget(w, s) == mem' = [mem EXCEPT ![w][s] = None]
Spend(w, fault) ==
    /\ fault \in Faults /\ crashes[w] > 0
    /\ crashes' = [crashes EXCEPT ![w] = @ - 1]

(* A table whose last transaction is not in the changelog is evidence of a   *)
(* rewound cluster; one of another genesis is nothing.                       *)
Mine(w, s) == table[w][s] # None /\ (table[w][s].genesis = 1 \/ Mistake = "genesis")
Missing(w, s) == Mine(w, s) /\ \A i \in Done(log[s]) : log[s][i].tx # table[w][s].tx

Open(w, s) ==
    /\ w \notin halted /\ owner[s] = w /\ mem[w][s] = None
    /\ EndAll(s, Aborted)
    /\ late' = [late EXCEPT ![s] = FALSE]
    /\ LET before == Aborted(log[s])
           st == IF Missing(w, s) THEN table[w][s].st  \* where it is believed
                 ELSE IF before = <<>> THEN Start(s) ELSE before[Len(before)].v
           fenced == [v \in Workers |-> IF mem[v][s] = None THEN mem[v]
                                        ELSE [mem[v] EXCEPT ![s].live = FALSE]]
       IN IF Missing(w, s) /\ "rewind" \in Faults /\ Mistake # "table"
          THEN halted' = halted \cup {w} /\ mem' = fenced
          ELSE /\ mem' = [fenced EXCEPT ![w][s] =
                    [live |-> TRUE, st |-> st, part |-> 0, new |-> None, tx |-> 0,
                     nonce |-> IF s = "sums" /\ Mistake # "nonce" THEN Fresh(Nonces) ELSE 0]]
               /\ UNCHANGED halted
    /\ UNCHANGED <<raw, ledger, clock, owner, table, crashes, rest>>

(* A shard that comes back to a worker that had it is opened anew: another   *)
(* one may have gone on meanwhile.                                           *)
Doubt(w, s) ==
    /\ owner[s] = w /\ mem[w][s] # None /\ ~mem[w][s].live /\ Mistake # "stale"
    /\ Forget(w, s)
    /\ UNCHANGED <<logs, late, owner, table, crashes, halted, rest>>

(* Part 1: compute the step from committed state, and write its outputs.     *)
(* Part 2: the changed rows and the marker. They are apart only where the    *)
(* transaction may be ended in between.                                      *)
Begin(w, s) ==
    LET m == mem[w][s]
        next == NextOf(s, m)
        name == IF "rewind" \in Faults THEN Fresh(TxNames(s)) ELSE 0
        written(out) ==
            LET item == [v |-> out, open |-> TRUE] IN
            /\ cells' = IF s = "bound" /\ out # None THEN Append(cells, item) ELSE cells
            /\ rel' = IF s = "sums" /\ out # None THEN Append(rel, item) ELSE rel
            /\ seen' = IF s = "sums" /\ out # None THEN seen \cup {out} ELSE seen
            /\ log' = IF "late" \in Faults THEN log
                      ELSE [log EXCEPT ![s] = Append(@, [v |-> next.st, tx |-> name,
                                                         open |-> TRUE])]
            /\ mem' = [mem EXCEPT ![w][s].part = IF "late" \in Faults THEN 1 ELSE 2,
                                  ![w][s].new = next.st, ![w][s].tx = name]
    IN
    /\ w \notin halted /\ m # None /\ m.part = 0
    /\ ~(jumped /\ Mistake = "sleep" /\ s = "sums")
    /\ next # None
    /\ IF ~m.live
       THEN Forget(w, s) /\ UNCHANGED <<cells, rel, seen, log, crashes>>
       ELSE \/ written(next.out) /\ UNCHANGED crashes
            \/ /\ next.out # None /\ Spend(w, "refuse")  \* the broker refuses the batch
               /\ IF Mistake = "refusal" THEN written(None)
                  ELSE Forget(w, s) /\ UNCHANGED <<cells, rel, seen, log>>
    /\ UNCHANGED <<raw, ledger, clock, late, owner, table, halted, saved, trimmed, clockup, jumped>>

Write(w, s) ==
    LET m == mem[w][s] IN
    /\ w \notin halted /\ m # None /\ m.part = 1
    /\ IF ~m.live THEN Forget(w, s) /\ UNCHANGED log
       ELSE /\ log' = [log EXCEPT ![s] = Append(@, [v |-> m.new, tx |-> m.tx, open |-> TRUE])]
            /\ mem' = [mem EXCEPT ![w][s].part = 2]
    /\ UNCHANGED <<raw, ledger, clock, cells, rel, late, owner, table, crashes, halted, rest>>

(* Part 3: the end, and the table after it. A request to commit may be       *)
(* without an answer: it was done, or is still on its way. Then the producer *)
(* is given up.                                                              *)
Committed(w, s) ==
    LET m == mem[w][s] IN
    mem' = [mem EXCEPT ![w][s].part = IF "rewind" \in Faults THEN 3 ELSE 0,
                       ![w][s].st = m.new, ![w][s].new = None]
Commit(w, s) ==
    LET m == mem[w][s] IN
    /\ w \notin halted /\ m # None /\ m.part = 2
    /\ IF ~m.live
       THEN Forget(w, s) /\ UNCHANGED <<cells, rel, log, late, crashes>>
       ELSE \/ EndAll(s, Ended) /\ Committed(w, s) /\ UNCHANGED <<late, crashes>>
            \/ EndAll(s, Ended) /\ Forget(w, s) /\ Spend(w, "torn") /\ UNCHANGED late
            \/ /\ Spend(w, "late") /\ ~late[s] /\ late' = [late EXCEPT ![s] = TRUE]
               /\ IF Mistake = "epoch"  \* it is sent again, and the epoch goes on
                  THEN EndAll(s, Ended) /\ Committed(w, s)
                  ELSE Forget(w, s) /\ UNCHANGED <<cells, rel, log>>
    /\ UNCHANGED <<raw, ledger, clock, owner, table, halted, rest>>

Store(w, s) ==
    LET m == mem[w][s] IN
    /\ w \notin halted /\ m # None /\ m.part = 3
    /\ table' = [table EXCEPT ![w][s] = [st |-> m.st, tx |-> m.tx, genesis |-> 1]]
    /\ mem' = [mem EXCEPT ![w][s].part = 0]
    /\ UNCHANGED <<logs, late, owner, crashes, halted, rest>>

(* The request arrives in its epoch, and ends what is open by now.           *)
Arrive(s) ==
    /\ late[s] /\ late' = [late EXCEPT ![s] = FALSE]
    /\ EndAll(s, Ended)
    /\ UNCHANGED <<raw, ledger, clock, workers, rest>>

----------------------------------------------------------------------------
(* Faults.                                                                   *)

Crash(w) ==
    /\ crashes[w] > 0 /\ crashes' = [crashes EXCEPT ![w] = @ - 1]
    /\ mem' = [mem EXCEPT ![w] = [s \in Shards |-> None]]
    /\ owner' \in [Shards -> Workers]
    /\ clockup' = (clockup /\ Mistake # "clock")
    /\ UNCHANGED <<logs, late, table, halted, seen, saved, trimmed, jumped>>

(* A worker that was taken for dead does not know that a shard has moved.    *)
Move(w, s) ==
    /\ owner[s] = w /\ crashes[w] > 0 /\ crashes' = [crashes EXCEPT ![w] = @ - 1]
    /\ \E v \in Workers \ {w} : owner' = [owner EXCEPT ![s] = v]
    /\ UNCHANGED <<logs, late, mem, table, halted, rest>>

Save ==
    /\ "rewind" \in Faults /\ saved = None /\ saved' = [logs |-> logs]
    /\ UNCHANGED <<logs, late, workers, seen, trimmed, clockup, jumped>>

(* The cluster is set back to the copy. Workers start again, with their      *)
(* tables, and perhaps with other shards; what was published stays so.       *)
Rewind ==
    /\ "logs" \in DOMAIN saved
    /\ raw' = saved.logs[1] /\ ledger' = saved.logs[2] /\ clock' = saved.logs[3]
    /\ cells' = saved.logs[4] /\ rel' = saved.logs[5] /\ log' = saved.logs[6]
    /\ late' = [s \in Shards |-> FALSE]
    /\ mem' = [w \in Workers |-> [s \in Shards |-> None]]
    /\ owner' \in [Shards -> Workers]
    /\ saved' = [used |-> TRUE]
    /\ trimmed' = 0
    /\ UNCHANGED <<table, crashes, halted, seen, clockup, jumped>>

Jump ==
    /\ "jump" \in Faults /\ ~jumped /\ jumped' = TRUE
    /\ UNCHANGED <<logs, late, workers, seen, saved, trimmed, clockup>>

(* Records that "sums" has applied are deleted; its changelog has them.      *)
Trim ==
    LET done == Stable(log["sums"]) IN
    /\ "trim" \in Faults /\ done # {}
    /\ log["sums"][Last(done)].v.at > trimmed
    /\ trimmed' = log["sums"][Last(done)].v.at
    /\ UNCHANGED <<logs, late, workers, seen, saved, clockup, jumped>>

Work(w, s) == Open(w, s) \/ Doubt(w, s) \/ Begin(w, s) \/ Write(w, s) \/ Commit(w, s) \/ Store(w, s)
Next ==
    \/ Produce \/ Trigger \/ Save \/ Rewind \/ Jump \/ Trim
    \/ \E s \in Shards : Arrive(s)
    \/ \E w \in Workers : Crash(w) \/ \E s \in Shards : Work(w, s) \/ Move(w, s)

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Trigger) /\ \A w \in Workers, s \in Shards : WF_vars(Work(w, s))

----------------------------------------------------------------------------
(* What must hold.                                                           *)

Paid == \A i \in Done(rel) : \E j \in 1..Len(ledger) :
    ledger[j].salt = rel[i].v.charge /\ ledger[j].epoch = EpochOf(rel[i].v.trigger)
Once == \A n \in 1..Triggers : Cardinality(Released(n)) <= 1
Exact == \A n \in 1..Len(clock) : \A i \in Released(n) : rel[i].v.content = Accepted(n)
OneNoise == \A a, b \in seen :
    (a.charge = b.charge /\ a.trigger = b.trigger /\ a.nonce = b.nonce) => a.content = b.content
Bounded == \A e \in 1..EpochOf(Triggers) :
    Cardinality(UNION {rel[i].v.content : i \in
        {j \in Done(rel) : EpochOf(rel[j].v.trigger) = e}}) <= Bound
AllReleased == <>(\A n \in 1..Triggers : Released(n) # {})
=============================================================================
