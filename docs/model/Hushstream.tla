----------------------------- MODULE Hushstream -----------------------------
(* The protocol of one pipeline: ledger, clock log, shards and what they     *)
(* commit, transactions and their epochs, local tables, nonces, a cluster    *)
(* that is rewound.                                                          *)
(*                                                                           *)
(* Raw partitions hold records of privacy units. In a direct pipeline the    *)
(* shard of each takes them in log order, at most Bound of a unit in an      *)
(* epoch, and writes them to the cells log, with a barrier after each cut;   *)
(* a unit's records are in one partition. In a re-partitioned pipeline it    *)
(* writes them to the units log of their unit's bound shard, and barriers to *)
(* each; bound shards do the rest, and write a barrier after those of all    *)
(* raw partitions. The shard "sums" adds up, closes a trigger after the      *)
(* barriers of all bound shards, and releases it. A step is a transaction in *)
(* three parts: outputs, changelog, end.                                     *)
(* In the product, which is below the folder agents/:                        *)
(* NextOfRaw, NextOfUnits, NextOfSums: step of the stages of ingest, bound   *)
(*     and aggregate                                                         *)
(* Beat, Trigger: clock/owner.py                                             *)
(* Open, Half, Refused: Shard._acquire, Shard.doubt, tables/evidence.py      *)
(* Begin, Write, Commit: Shard._compute, transaction.send and .transact,     *)
(*     Shard._follow                                                         *)
(* Close: Shard.close; Trim: kafka/trim.py                                   *)
(* Arrive: a late EndTxn, kafka/private/of_aiokafka_producer.py              *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Workers,  \* a set of at most two
    Parts,    \* raw partitions, by their shards
    Bounds,   \* shards that bound: the same if the pipeline is direct
    Persons,  \* privacy units of each of them
    Raw,      \* records that producers write, to any of Parts
    Floor,    \* records of each that were there before the deployment: they do not count
    Triggers, \* number of triggers
    Each,     \* triggers of an epoch
    Bound,    \* records of a unit that count in an epoch
    Crashes,  \* faults of each worker
    Faults,   \* what may happen: of "torn", "late", "rewind", "cut", "refuse", "old", "jump", "trim", "close", "half"
    Mistake   \* "" or what is done wrong

Direct == Parts = Bounds
Alike ==  \* no worker differs from another, and no raw partition, bound shard or unit
    UNION {Permutations(same \ {"bound"}) : same \in {Workers, Parts, Bounds, Persons}}
Shards == Parts \cup Bounds \cup {"sums"}
Readers == (Bounds \ Parts) \cup {"sums"}  \* of logs between shards
Units == Bounds \X Persons  \* the first names the shard that bounds it
None == [no |-> TRUE]

VARIABLES
    raw,      \* of each raw partition, records that a beat has passed: [unit, age: of which history]
    ledger,   \* charges, in order: [epoch, salt]; the salt stands for the chain hash
    clock,    \* triggers, in order: [cut of each raw partition, charge]
    log,      \* transactions of each shard: [out, st, open]; the states are its changelog
    queue,    \* its units log, or the cells log, of each of Readers: which transactions wrote
              \* to it, <<shard, place in log>>, in order
    late,     \* whether a request to commit in the newest epoch may still arrive, of each shard
    mem,      \* of each worker and shard: None, or [live: its epoch is the newest, st, part, nonce,
              \* pub: so is that of its second producer, which "sums" has for releases alone]
    table,    \* likewise, what its disk has that the changelog lacks: None, or [st, other: genesis]
    crashes,  \* faults that are left of each worker
    seen,     \* everything that was ever readable of releases, also of aborted attempts
    halted,   \* workers that refuse to go on
    rewound,  \* whether the cluster, or a log of Readers, was set back
    trimmed,  \* place in the cells log below which it was deleted
    clockup,  \* whether the clock has an owner
    jumped    \* whether a wall clock was set back

vars == <<raw, ledger, clock, log, queue, late, mem, table, crashes, seen, halted, rewound, trimmed,
          clockup, jumped>>
logs == <<raw, ledger, clock, log, queue>>
rest == <<seen, rewound, trimmed, clockup, jumped>>
Age == IF rewound THEN 1 ELSE 0  \* of the cluster's history
Max(a, b) == IF a < b THEN b ELSE a

----------------------------------------------------------------------------
(* What should come out: a function of raw log, clock log and ledger.        *)
EpochOf(n) == (n - 1) \div Each + 1
Epochs == 1..EpochOf(Triggers + 1)
First(n) == (EpochOf(n) - 1) * Each + 1  \* the first trigger of its epoch
Cut(n, p) == IF n = 0 THEN Floor ELSE IF n > Len(clock) THEN Len(raw[p]) ELSE clock[n].cut[p]
Id(p, i) == <<raw[p][i], p, i>>  \* a record: another history has another one in its place
UnitOf(id) == id[1].unit
Between(m, n) ==  \* records after the cuts of trigger m, up to those of trigger n
    UNION {{Id(p, i) : i \in (Cut(m, p) + 1)..Cut(n, p)} : p \in Parts}

Item(r, k) == log[queue[r][k][1]][queue[r][k][2]]  \* in the log that r reads
Order(b) ==  \* in which a bound shard sees records
    IF Direct THEN [i \in 1..Len(raw[b]) |-> Id(b, i)]
    ELSE [k \in 1..Len(queue[b]) |-> IF "rec" \in DOMAIN Item(b, k).out THEN Item(b, k).out.rec ELSE None]
AcceptedBy(b, n) ==  \* records of trigger n: in that order, as long as each unit's bound lasts
    LET order == Order(b)  mine == Between(n - 1, n)
        epoch == Between(First(n) - 1, First(n) + Each - 1)
    IN {order[k] : k \in {j \in 1..Len(order) : order[j] \in mine /\
           Cardinality({i \in 1..(j - 1) : order[i] \in epoch /\ UnitOf(order[i]) = UnitOf(order[j])}) < Bound}}
Accepted(n) == UNION {AcceptedBy(b, n) : b \in Bounds}

Hangs(l) == l # <<>> /\ l[Len(l)].open  \* a transaction has not ended: readers stop before it
Done(l) == IF Hangs(l) THEN SubSeq(l, 1, Len(l) - 1) ELSE l
Ended(l) == IF Hangs(l) THEN [l EXCEPT ![Len(l)].open = FALSE] ELSE l
(* Nobody needs the states before the last but a cluster that may be rewound. *)
Compacted(l) == [i \in 1..Len(l) |-> IF i < Len(l) THEN [l[i] EXCEPT !.st = None] ELSE l[i]]
Finished(l) == IF "rewind" \in Faults /\ ~rewound THEN Ended(l) ELSE Compacted(Ended(l))
Releases == {i \in 1..Len(Done(log["sums"])) : log["sums"][i].out # None}
Rel(i) == log["sums"][i].out
Released(n) == {i \in Releases : Rel(i).trigger = n}

----------------------------------------------------------------------------
(* States of the shards, which their changelogs repeat, and their next step: *)
(* [st, out]; out is None or what is written.                                *)
Start(s) == IF s = "sums"
    THEN [at |-> 0, sum |-> {}, closed |-> 0, content |-> {}, nonce |-> 0, out |-> 0,
          came |-> [b \in Bounds |-> 0]]
    ELSE [at |-> IF s \in Parts /\ Mistake # "floor" THEN Floor ELSE 0, trigger |-> 0,
          spent |-> [ue \in Units \X Epochs |-> 0], came |-> [p \in Parts |-> 0]]

StateIn(s, l) ==  \* the last one of a changelog
    LET S == {i \in 1..Len(l) : l[i].st # None} IN
    IF S = {} THEN Start(s) ELSE l[CHOOSE i \in S : \A j \in S : j <= i].st

Purse(id, n) ==  \* of the record's unit, for the epoch of trigger n
    <<IF Mistake = "shared" THEN CHOOSE u \in Units : u[1] = UnitOf(id)[1] ELSE UnitOf(id), EpochOf(n)>>
NextOfRaw(p, st) ==  \* it bounds if the pipeline is direct
    LET n == st.trigger + 1
        bounds == Direct \/ Mistake = "apart"
        some == {i \in (st.at + 1)..Cut(n, p) : bounds => st.spent[Purse(Id(p, i), n)] < Bound} IN
    IF some # {}
    THEN LET i == CHOOSE i \in some : \A j \in some : i <= j IN
         [st |-> [st EXCEPT !.at = i, !.spent[Purse(Id(p, i), n)] = IF bounds THEN @ + 1 ELSE 0],
          out |-> [rec |-> Id(p, i), of |-> n]]
    ELSE IF n > Len(clock) THEN None
    ELSE [st |-> [st EXCEPT !.at = Max(@, Cut(n, p)), !.trigger = n], out |-> [barrier |-> n, from |-> p]]

(* What a reader meets next; None if there is nothing, or if it refuses: a   *)
(* log without the barrier that was due is not of its history.               *)
Meets(r, st) ==
    IF st.at >= Len(queue[r]) \/ (r = "sums" /\ st.at < trimmed) \/ \E k \in 1..(st.at + 1) : Item(r, k).open
    THEN None
    ELSE LET v == Item(r, st.at + 1).out IN
         IF "barrier" \in DOMAIN v /\ v.barrier # st.came[v.from] + 1 /\ Mistake # "passed" THEN None ELSE v
All(came, n) == Cardinality({s \in DOMAIN came : came[s] >= n}) >= IF Mistake = "early" THEN 1 ELSE Cardinality(DOMAIN came)
NextOfUnits(b, st) ==
    LET v == Meets(b, st)  on == [st EXCEPT !.at = @ + 1] IN
    IF v = None THEN None
    ELSE IF "rec" \in DOMAIN v
    THEN LET purse == Purse(v.rec, v.of) IN
         IF st.spent[purse] >= Bound /\ Mistake # "apart" THEN [st |-> on, out |-> None]
         ELSE [st |-> [on EXCEPT !.spent[purse] = @ + 1], out |-> v]
    ELSE LET noted == [on EXCEPT !.came[v.from] = v.barrier] IN
         IF ~All(noted.came, st.trigger + 1) THEN [st |-> noted, out |-> None]
         ELSE [st |-> [noted EXCEPT !.trigger = v.barrier], out |-> [barrier |-> v.barrier, from |-> b]]

NextOfSums(st, nonce) ==
    IF st.closed > Len(clock) THEN None  \* a state of another history
    ELSE IF st.out < st.closed  \* close, then release
    THEN [st |-> [st EXCEPT !.out = st.closed, !.content = {}],
          out |-> [trigger |-> st.closed, content |-> st.content, nonce |-> st.nonce,
                   charge |-> clock[st.closed].charge]]
    ELSE LET v == Meets("sums", st) IN
    IF v = None THEN None
    ELSE LET on == [st EXCEPT !.at = @ + 1, !.came[v.from] = v.barrier]
             due == {r \in st.sum : r.of = v.barrier}
             new == IF v \in st.sum THEN [v EXCEPT !.rec = Append(@, "twice")] ELSE v IN
         [out |-> None,
          st |-> IF "rec" \in DOMAIN v THEN [st EXCEPT !.at = @ + 1, !.sum = @ \cup {new}]
                 ELSE IF ~All(on.came, st.closed + 1) THEN on
                 ELSE [on EXCEPT !.closed = v.barrier, !.content = {r.rec : r \in due}, !.sum = @ \ due,
                                 !.nonce = nonce]]

NextOf(s, m) == CASE s = "sums" -> NextOfSums(m.st, m.nonce)
                  [] s \in Parts -> NextOfRaw(s, m.st)
                  [] OTHER -> NextOfUnits(s, m.st)

(* A nonce that is drawn at random is one that no noise of a later trigger   *)
(* has. One history needs none: there the same for ever covers one content.  *)
Met(st) == {one.nonce : one \in {r \in seen : r.trigger > st.closed}}
Drawn(s, st) == IF s # "sums" \/ "rewind" \notin Faults \/ Mistake = "nonce" THEN 0
                ELSE CHOOSE n \in 1..(Cardinality(Met(st)) + 1) : n \notin Met(st)

----------------------------------------------------------------------------
Init ==
    /\ raw = [p \in Parts |-> [i \in 1..Floor |-> [unit |-> CHOOSE u \in Units : TRUE, age |-> 0]]]
    /\ ledger = <<>> /\ clock = <<>> /\ queue = [r \in Readers |-> <<>>]
    /\ log = [s \in Shards |-> <<>>] /\ late = [s \in Shards |-> FALSE]
    /\ mem = [w \in Workers |-> [s \in Shards |-> None]]
    /\ table = [w \in Workers |-> [s \in Shards |->
         IF "old" \in Faults /\ s \in Parts  \* left by a deployment of the same name
         THEN [st |-> [Start(s) EXCEPT !.at = Floor + 1], other |-> TRUE] ELSE None]]
    /\ crashes = [w \in Workers |-> Crashes]
    /\ seen = {} /\ halted = {} /\ rewound = FALSE /\ trimmed = 0
    /\ clockup = TRUE /\ jumped = FALSE

(* Records may be used once the clock's owner has passed them.               *)
Beat(p, u, more) ==
    /\ clockup /\ Len(clock) < Triggers /\ (Direct => u[1] = p)
    /\ Cardinality(UNION {{q} \X ((Floor + 1)..Len(raw[q])) : q \in Parts}) + more <= Raw
    /\ raw' = [raw EXCEPT ![p] = @ \o [i \in 1..more |-> [unit |-> u, age |-> Age]]]
    /\ UNCHANGED <<ledger, clock, log, queue, late, mem, table, crashes, halted, rest>>

(* One transaction of the clock's owner: the charge, unless the epoch has    *)
(* one, and the trigger with its cut.                                        *)
Trigger ==
    /\ clockup /\ Len(clock) < Triggers
    /\ LET n == Len(clock) + 1
           paid == {i \in 1..Len(ledger) : ledger[i].epoch = EpochOf(n)}
           charge == IF paid = {} THEN <<Age, n>> ELSE ledger[CHOOSE i \in paid : TRUE].salt
       IN /\ clock' = Append(clock, [cut |-> [p \in Parts |-> Len(raw[p])], charge |-> charge])
          /\ ledger' = IF paid = {} /\ Mistake # "unpaid"
                       THEN Append(ledger, [epoch |-> EpochOf(n), salt |-> charge]) ELSE ledger
    /\ UNCHANGED <<raw, log, queue, late, mem, table, crashes, halted, rest>>

----------------------------------------------------------------------------
(* Transactions. InitProducerId aborts what is open and begins a new epoch,  *)
(* so that requests of the one before are refused.                           *)

Forget(w, s) == mem' = [mem EXCEPT ![w][s] = None]
Spend(w) == crashes[w] > 0 /\ crashes' = [crashes EXCEPT ![w] = @ - 1]

(* A table that knows more than the changelog is evidence of a rewound       *)
(* cluster; one of another genesis is nothing.                               *)
Ahead(w, s) == table[w][s] # None /\ (table[w][s].other => Mistake = "genesis" /\ Done(log[s]) = <<>>)

(* A worker opens a shard that nobody holds, or one whose owner was taken    *)
(* for dead. That one's requests are refused from now on; it counts as       *)
(* having noticed at once, unless that is the mistake.                       *)
Open(w, s) ==
    /\ w \notin halted /\ mem[w][s] = None
    /\ LET others == {v \in Workers : mem[v][s] # None /\ (mem[v][s].live \/ Mistake = "stale")} IN
       IF others = {} THEN UNCHANGED crashes ELSE \E v \in others : Spend(v)
    /\ log' = [log EXCEPT ![s] = Done(@)]
    /\ queue' = [r \in Readers |-> SelectSeq(queue[r], LAMBDA one : one[1] = s => one[2] <= Len(log'[s]))]
    /\ late' = [late EXCEPT ![s] = FALSE]
    /\ LET believed == Ahead(w, s) /\ Mistake \in {"table", "genesis"}
           st == IF believed THEN table[w][s].st ELSE StateIn(s, Done(log[s]))
           fenced == [v \in Workers |-> [mem[v] EXCEPT ![s] =
               IF @ = None \/ Mistake # "stale" THEN None ELSE [@ EXCEPT !.live = FALSE, !.pub = FALSE]]]
       IN IF Ahead(w, s) /\ ~believed
          THEN halted' = halted \cup {w} /\ mem' = [fenced EXCEPT ![w] = [x \in Shards |-> None]]
          ELSE /\ mem' = [fenced EXCEPT ![w][s] =
                    [live |-> TRUE, pub |-> TRUE, part |-> 0, nonce |-> Drawn(s, st), st |-> st]]
               /\ UNCHANGED halted
    /\ UNCHANGED <<raw, ledger, clock, table, rest>>

(* A worker that has lost the first producer of "sums" to another one starts *)
(* the second, and reads the state. Each is refused where the other one's    *)
(* producer is due; the mistake is to read the state before. Here it does    *)
(* not look for evidence of a rewound cluster.                               *)
Half(w) ==
    LET s == "sums"  l == log[s]
        kept == IF Mistake = "soon" THEN 1..Len(Done(l)) ELSE {Len(Done(l))}
    IN
    /\ "half" \in Faults /\ w \notin halted /\ mem[w][s] = None
    /\ log' = [log EXCEPT ![s] = IF Hangs(l) /\ l[Len(l)].out # None THEN Done(l) ELSE l]
    /\ \E k \in kept : LET st == StateIn(s, SubSeq(l, 1, k)) IN
         mem' = [v \in Workers |-> [mem[v] EXCEPT ![s] =
             IF v = w THEN [live |-> FALSE, pub |-> TRUE, part |-> 0, nonce |-> Drawn(s, st), st |-> st]
             ELSE IF @ = None THEN None ELSE [@ EXCEPT !.pub = FALSE]]]
    /\ UNCHANGED <<raw, ledger, clock, queue, late, table, crashes, halted, rest>>

(* A rebalance takes a shard away, in the middle of whatever it does.        *)
Close(w, s) ==
    /\ "close" \in Faults /\ mem[w][s] # None /\ Forget(w, s)
    /\ UNCHANGED <<logs, late, table, crashes, halted, rest>>

(* The newest epoch of the producer that is due is this worker's.            *)
Mine(s, m) == IF s = "sums" /\ m.st.out < m.st.closed THEN m.pub ELSE m.live

(* A shard that has not noticed learns of it at its next request.            *)
Refused(w, s) ==
    /\ mem[w][s] # None /\ ~Mine(s, mem[w][s]) /\ NextOf(s, mem[w][s]) # None
    /\ Forget(w, s)
    /\ UNCHANGED <<logs, late, table, crashes, halted, rest>>

Holds(w, s, part) == mem[w][s] # None /\ Mine(s, mem[w][s]) /\ mem[w][s].part = part

(* Part 1: compute the step from committed state, and write its outputs.     *)
(* Part 2: the changed rows and the marker. They are apart only where the    *)
(* transaction may be ended in between.                                      *)
Into(s, out) ==  \* the logs that it goes to, by their readers
    IF out = None \/ s = "sums" THEN {} ELSE IF s \in Bounds THEN {"sums"}
    ELSE IF "barrier" \in DOMAIN out THEN Bounds
    ELSE IF Mistake = "moved" THEN {CHOOSE b \in Bounds : b # UnitOf(out.rec)[1] <=> out.rec[3] = Floor + 1}
    ELSE {UnitOf(out.rec)[1]}
Begin(w, s) ==
    LET next == NextOf(s, mem[w][s])
        apart == "late" \in Faults
        written(out) ==
            /\ log' = [log EXCEPT ![s] = Append(@,
                 [out |-> out, st |-> IF apart THEN None ELSE next.st, open |-> TRUE])]
            /\ queue' = [r \in Readers |-> queue[r] \o IF r \in Into(s, out) THEN <<<<s, Len(log'[s])>>>> ELSE <<>>]
            /\ seen' = IF s = "sums" /\ out # None THEN seen \cup {out} ELSE seen
            /\ mem' = [mem EXCEPT ![w][s].part = IF apart THEN 1 ELSE 2]
    IN
    /\ Holds(w, s, 0) /\ next # None
    /\ ~(jumped /\ Mistake = "sleep" /\ s = "sums")
    /\ \/ written(next.out) /\ UNCHANGED crashes
       \/ /\ next.out # None /\ "refuse" \in Faults /\ Spend(w)  \* the broker refuses the batch
          /\ IF Mistake = "refusal" THEN written(None) ELSE Forget(w, s) /\ UNCHANGED <<log, queue, seen>>
    /\ UNCHANGED <<raw, ledger, clock, late, table, halted, rewound, trimmed, clockup, jumped>>

Write(w, s) ==
    LET st == NextOf(s, mem[w][s]).st IN
    /\ Holds(w, s, 1)
    /\ log' = [log EXCEPT ![s] = IF Hangs(@) THEN [@ EXCEPT ![Len(@)].st = st]
                                 ELSE Append(@, [out |-> None, st |-> st, open |-> TRUE])]
    /\ mem' = [mem EXCEPT ![w][s].part = 2]
    /\ UNCHANGED <<raw, ledger, clock, queue, late, table, crashes, halted, rest>>

(* Part 3: the end, and the table after it. A request to commit may be       *)
(* without an answer: it was done, or is still on its way. Then the producer *)
(* is given up.                                                              *)
Commit(w, s) ==
    LET st == NextOf(s, mem[w][s]).st
        ended == log' = [log EXCEPT ![s] = Finished(@)]
        goes == mem' = [mem EXCEPT ![w][s].part = 0, ![w][s].st = st]
    IN
    /\ Holds(w, s, 2)
    /\ \/ ended /\ goes /\ UNCHANGED <<late, crashes>>
       \/ "torn" \in Faults /\ Spend(w) /\ ended /\ Forget(w, s) /\ UNCHANGED late
       \/ /\ "late" \in Faults /\ Spend(w) /\ late' = [late EXCEPT ![s] = TRUE]
          /\ IF Mistake = "epoch"  \* it is sent again, and the epoch goes on
             THEN ended /\ goes ELSE Forget(w, s) /\ UNCHANGED log
    /\ UNCHANGED <<raw, ledger, clock, queue, table, halted, rest>>

(* The request arrives in its epoch, and ends what is open by now.           *)
Arrive(s) ==
    /\ late[s] /\ late' = [late EXCEPT ![s] = FALSE]
    /\ log' = [log EXCEPT ![s] = Ended(@)]
    /\ UNCHANGED <<raw, ledger, clock, queue, mem, table, crashes, halted, rest>>

----------------------------------------------------------------------------
(* Faults.                                                                   *)
Crash(w) ==
    /\ Mistake = "clock" \/ \E s \in Shards : mem[w][s] # None
    /\ Spend(w)
    /\ mem' = [mem EXCEPT ![w] = [s \in Shards |-> None]]
    /\ clockup' = (clockup /\ Mistake # "clock")
    /\ UNCHANGED <<logs, late, table, halted, seen, rewound, trimmed, jumped>>

(* The cluster is set back to what it was at some moment: of each log a      *)
(* beginning remains, and nothing that follows from what is gone. Workers    *)
(* start again. Disks may know more, or be older, or be lost: of one worker  *)
(* all or none knows more, since a worker that halts later does no more than *)
(* one that crashes. What was published stays so; a charge that is gone      *)
(* never comes again. Where no other is left, this is no more than a start.  *)
Longest == CHOOSE n \in {Len(log[s]) : s \in Shards} : \A s \in Shards : Len(log[s]) <= n
Rewind ==
    /\ "rewind" \in Faults /\ ~rewound /\ rewound' = TRUE
    /\ seen # {} /\ \E n \in 1..Len(clock), k \in [Shards -> 0..Longest] :
         LET kept == [s \in Shards |-> SubSeq(log[s], 1, k[s])]  st == [s \in Shards |-> StateIn(s, kept[s])]
             gone == {s \in Shards : k[s] < Len(Done(log[s]))}
         IN
         /\ \A s \in Shards : k[s] <= Len(Done(log[s]))
         /\ ledger' = SelectSeq(ledger, LAMBDA c : \E i \in 1..n : clock[i].charge = c.salt)
         /\ seen' = {one \in seen : \E i \in 1..Len(ledger') : ledger'[i].salt = one.charge}
         /\ seen' # {}
         /\ queue' = [r \in Readers |-> SelectSeq(queue[r], LAMBDA one : one[2] <= k[one[1]])]
         /\ \A r \in Readers : queue'[r] = SubSeq(queue[r], 1, Len(queue'[r])) /\ st[r].at <= Len(queue'[r])
         /\ \E i \in [Parts -> 0..(Floor + Raw)] :
              /\ \A p \in Parts : st[p].trigger <= n /\ i[p] \in Max(st[p].at, Cut(n, p))..Cut(n + 1, p)
              /\ raw' = [p \in Parts |-> SubSeq(raw[p], 1, i[p])]
         /\ clock' = SubSeq(clock, 1, n)
         /\ log' = [s \in Shards |-> Compacted(kept[s])]
         /\ \E know \in SUBSET Workers :
              table' = [w \in Workers |-> [s \in Shards |->
                  IF w \notin know \/ s \notin gone THEN None
                  ELSE [st |-> IF Mistake = "table" THEN StateIn(s, Done(log[s])) ELSE None,
                        other |-> FALSE]]]
    /\ late' = [s \in Shards |-> FALSE]
    /\ mem' = [w \in Workers |-> [s \in Shards |-> None]]
    /\ trimmed' = 0
    /\ UNCHANGED <<crashes, halted, clockup, jumped>>

(* A log between shards alone loses its end. Only the next barrier tells.    *)
Truncate ==
    /\ "cut" \in Faults /\ ~rewound /\ rewound' = TRUE
    /\ \E r \in Readers : \E k \in trimmed..(Len(queue[r]) - 1) :
         queue' = [queue EXCEPT ![r] = SubSeq(@, 1, k)]
    /\ mem' = [w \in Workers |-> [s \in Shards |-> None]]
    /\ UNCHANGED <<raw, ledger, clock, log, late, table, crashes, halted, seen, trimmed, clockup, jumped>>

Jump ==
    /\ "jump" \in Faults /\ ~jumped /\ jumped' = TRUE
    /\ UNCHANGED <<logs, late, mem, table, crashes, halted, seen, rewound, trimmed, clockup>>

(* Records that "sums" has applied are deleted; its changelog has them.      *)
Trim ==
    LET at == StateIn("sums", Done(log["sums"])).at IN
    /\ "trim" \in Faults /\ at > trimmed /\ trimmed' = at
    /\ UNCHANGED <<logs, late, mem, table, crashes, halted, seen, rewound, clockup, jumped>>

(* A shard that has nothing to do may as well be opened later. Where states  *)
(* are many, it is.                                                          *)
Due(s) ==
    \/ Parts = {"bound"} /\ "rewind" \notin Faults
    \/ NextOf(s, [st |-> StateIn(s, Done(log[s])), nonce |-> 0]) # None
Work(w, s) == (Due(s) /\ Open(w, s)) \/ Refused(w, s) \/ Begin(w, s) \/ Write(w, s) \/ Commit(w, s)
Next ==
    \/ Trigger \/ Rewind \/ Truncate \/ Jump \/ Trim
    \/ \E p \in Parts, u \in Units : Beat(p, u, 1)
    \/ \E s \in Shards : Arrive(s)
    \/ \E w \in Workers : Crash(w) \/ Half(w) \/ \E s \in Shards : Work(w, s) \/ Close(w, s)

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Trigger) /\ \A w \in Workers, s \in Shards : WF_vars(Work(w, s))

----------------------------------------------------------------------------
(* What must hold.                                                           *)
Paid == \A i \in Releases : \E j \in 1..Len(ledger) :
    ledger[j].salt = Rel(i).charge /\ ledger[j].epoch = EpochOf(Rel(i).trigger)
Once == \A n \in 1..Triggers : Cardinality(Released(n)) <= 1 /\ (n > 1 /\ Released(n) # {} => Released(n - 1) # {})
Exact == \A i \in Releases : Rel(i).trigger <= Len(clock) /\ Rel(i).content = Accepted(Rel(i).trigger)
OneNoise == \A a, b \in seen :
    (a.charge = b.charge /\ a.trigger = b.trigger /\ a.nonce = b.nonce) => a.content = b.content
Bounded == \A e \in Epochs, u \in Units :
    LET counted == UNION {Rel(i).content : i \in {j \in Releases : EpochOf(Rel(j).trigger) = e}}
    IN Cardinality({id \in counted : UnitOf(id) = u}) <= Bound
(* What a truncated log lost unnoticed is of one trigger, for each partition. *)
Lacks(i, p) == \E id \in Between(Rel(i).trigger - 1, Rel(i).trigger) \ Rel(i).content : id[2] = p
Noticed == \A p \in Parts : Cardinality({Rel(i).trigger : i \in {j \in Releases : Lacks(j, p)}}) <= 1
AllReleased == <>(\A n \in 1..Triggers : Released(n) # {})
=============================================================================
