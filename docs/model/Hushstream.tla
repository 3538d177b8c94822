----------------------------- MODULE Hushstream -----------------------------
(* The protocol of one pipeline: ledger, clock log, shards and what they     *)
(* commit, transactions and their epochs, local tables, nonces, a cluster    *)
(* that is rewound.                                                          *)
(*                                                                           *)
(* Raw partitions hold records of one privacy unit. In a direct pipeline     *)
(* there is one, and its shard "bound" takes them in log order, at most      *)
(* Bound an epoch, and writes them to the cells log, with a barrier after    *)
(* each cut. In a re-partitioned pipeline the shard of each raw partition    *)
(* writes all of them to the units log, with such barriers; "bound" takes    *)
(* them from there, and writes a barrier once it has those of all raw        *)
(* partitions. The shard "sums" adds records up, closes a trigger at its     *)
(* barrier, and releases it. A step is a transaction in three parts:         *)
(* outputs, changelog, end.                                                  *)
(*                                                                           *)
(* In the product, which is below the folder agents/:                        *)
(* NextOfRaw, NextOfUnits, NextOfSums: step of the stages of ingest, bound   *)
(*     and aggregate                                                         *)
(* Beat, Trigger: clock/owner.py                                             *)
(* Open, Refused: Shard._acquire, Shard.doubt, worker/tables/evidence.py     *)
(* Begin, Write, Commit: Shard._compute, transaction.send and .transact,     *)
(*     Shard._follow                                                         *)
(* Close: Shard.close; Trim: kafka/trim.py                                   *)
(* Arrive: a late EndTxn, kafka/private/of_aiokafka_producer.py              *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Workers,  \* a set of at most two
    Parts,    \* raw partitions, by their shards: {"bound"} if the pipeline is direct
    Raw,      \* records that producers write, to any of them
    Floor,    \* records of each that were there before the deployment: they do not count
    Triggers, \* number of triggers
    Each,     \* triggers of an epoch
    Bound,    \* records of the unit that count in an epoch
    Crashes,  \* faults of each worker
    Faults,   \* what may happen: of "torn", "late", "rewind", "refuse", "old", "jump", "trim", "close"
    Mistake   \* "" or what is done wrong

ASSUME "rewind" \in Faults => Parts = {"bound"}

Direct == Parts = {"bound"}
Alike ==  \* no worker differs from another, and no raw partition
    IF Direct THEN Permutations(Workers) ELSE Permutations(Workers) \cup Permutations(Parts)
Shards == Parts \cup {"bound", "sums"}
None == [no |-> TRUE]

VARIABLES
    raw,      \* of each raw partition, records that a beat has passed: the history of the
              \* cluster that each belongs to
    ledger,   \* charges, in order: [epoch, salt]; the salt stands for the chain hash
    clock,    \* triggers, in order: [cut of each raw partition, charge]
    log,      \* transactions of each shard: [out, st, open]. What "bound" puts out is the cells
              \* log, what "sums" puts out the releases; the states are the shard's changelog
    units,    \* the units log: which transactions wrote to it, <<shard, place in log>>, in order
    late,     \* whether a request to commit in the newest epoch may still arrive, of each shard
    mem,      \* of each worker and shard: None, or [live: its epoch is the newest, st, part, nonce]
    table,    \* likewise, what its disk has that the changelog lacks: None, or [st, other: genesis]
    crashes,  \* faults that are left of each worker
    seen,     \* everything that was ever readable of releases, also of aborted attempts
    halted,   \* workers that refuse to go on
    rewound,  \* whether the cluster was set back
    trimmed,  \* place in the cells log below which it was deleted
    clockup,  \* whether the clock has an owner
    jumped    \* whether a wall clock was set back

vars == <<raw, ledger, clock, log, units, late, mem, table, crashes, seen, halted, rewound, trimmed,
          clockup, jumped>>
logs == <<raw, ledger, clock, log, units>>
rest == <<seen, rewound, trimmed, clockup, jumped>>
Age == IF rewound THEN 1 ELSE 0  \* of the cluster's history
Max(a, b) == IF a < b THEN b ELSE a

----------------------------------------------------------------------------
(* What should come out: a function of raw log, clock log and ledger.         *)

EpochOf(n) == (n - 1) \div Each + 1
Epochs == 1..EpochOf(Triggers + 1)
First(n) == (EpochOf(n) - 1) * Each + 1  \* the first trigger of its epoch
Cut(n, p) == IF n = 0 THEN Floor ELSE IF n > Len(clock) THEN Len(raw[p]) ELSE clock[n].cut[p]
Id(p, i) == <<raw[p][i], p, i>>  \* a record: another history has another one in its place
Between(m, n) ==  \* records after the cuts of trigger m, up to those of trigger n
    UNION {{Id(p, i) : i \in (Cut(m, p) + 1)..Cut(n, p)} : p \in Parts}

Item(k) == log[units[k][1]][units[k][2]]  \* of the units log
(* The order in which "bound" sees records.                                  *)
Order == IF Direct THEN [i \in 1..Len(raw["bound"]) |-> Id("bound", i)]
         ELSE [k \in 1..Len(units) |-> IF "rec" \in DOMAIN Item(k).out THEN Item(k).out.rec ELSE None]
Accepted(n) ==  \* records of trigger n: in that order, as long as the epoch's bound lasts
    LET order == Order
        epoch == Between(First(n) - 1, First(n) + Each - 1)
        mine == Between(n - 1, n)
    IN {order[k] : k \in {j \in 1..Len(order) : order[j] \in mine /\
           Cardinality({i \in 1..(j - 1) : order[i] \in epoch}) < Bound}}

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
    THEN [at |-> 0, sum |-> {}, closed |-> 0, content |-> {}, nonce |-> 0, out |-> 0]
    ELSE [at |-> IF s \in Parts /\ Mistake # "floor" THEN Floor ELSE 0, trigger |-> 0,
          spent |-> [e \in Epochs |-> 0], came |-> [p \in Parts |-> 0]]

StateIn(s, l) ==  \* the last one of a changelog
    LET S == {i \in 1..Len(l) : l[i].st # None} IN
    IF S = {} THEN Start(s) ELSE l[CHOOSE i \in S : \A j \in S : j <= i].st

NextOfRaw(p, st) ==  \* it bounds if the pipeline is direct
    LET n == st.trigger + 1
        e == EpochOf(n)
        bounds == p = "bound" \/ Mistake = "apart" IN
    IF st.at < Cut(n, p) /\ (bounds => st.spent[e] < Bound)
    THEN [st |-> [st EXCEPT !.at = @ + 1, !.spent[e] = IF bounds THEN @ + 1 ELSE 0],
          out |-> [rec |-> Id(p, st.at + 1), of |-> n]]
    ELSE IF n > Len(clock) THEN None
    ELSE [st |-> [st EXCEPT !.at = Max(@, Cut(n, p)), !.trigger = n],
          out |-> [barrier |-> n, from |-> p]]

NextOfUnits(st) ==
    IF st.at = Len(units) \/ \E k \in 1..Len(units) : k <= st.at + 1 /\ Item(k).open THEN None
    ELSE LET v == Item(st.at + 1).out
             on == [st EXCEPT !.at = @ + 1] IN
    IF "rec" \in DOMAIN v
    THEN IF st.spent[EpochOf(v.of)] >= Bound /\ Mistake # "apart" THEN [st |-> on, out |-> None]
         ELSE [st |-> [on EXCEPT !.spent[EpochOf(v.of)] = @ + 1], out |-> v]
    ELSE LET came == [st.came EXCEPT ![v.from] = v.barrier]
             last == IF Mistake = "early" THEN v.barrier > st.trigger
                     ELSE \A p \in Parts : came[p] >= v.barrier IN
         IF last THEN [st |-> [on EXCEPT !.came = came, !.trigger = v.barrier], out |-> v]
         ELSE [st |-> [on EXCEPT !.came = came], out |-> None]

NextOfSums(st, nonce) ==
    IF st.closed > Len(clock) THEN None  \* a state of another history
    ELSE IF st.out < st.closed  \* close, then release
    THEN [st |-> [st EXCEPT !.out = st.closed, !.content = {}],
          out |-> [trigger |-> st.closed, content |-> st.content, nonce |-> st.nonce,
                   charge |-> clock[st.closed].charge]]
    ELSE IF st.at < trimmed \/ st.at >= Len(Done(log["bound"])) THEN None
    ELSE LET v == log["bound"][st.at + 1].out
             on == [st EXCEPT !.at = @ + 1] IN
         [st |-> IF v = None THEN on
                 ELSE IF "rec" \in DOMAIN v THEN [on EXCEPT !.sum = @ \cup {v}]
                 ELSE LET due == {r \in st.sum : r.of = v.barrier} IN
                      [on EXCEPT !.closed = v.barrier, !.content = {r.rec : r \in due},
                                 !.sum = @ \ due, !.nonce = nonce],
          out |-> None]

NextOf(s, m) == CASE s = "sums" -> NextOfSums(m.st, m.nonce)
                  [] s \in Parts -> NextOfRaw(s, m.st)
                  [] OTHER -> NextOfUnits(m.st)

(* A nonce that is drawn at random is one that no noise of a later trigger   *)
(* has. One history needs none: there the same for ever covers one content.  *)
Met(st) == {one.nonce : one \in {r \in seen : r.trigger > st.closed}}
Drawn(s, st) == IF s # "sums" \/ "rewind" \notin Faults \/ Mistake = "nonce" THEN 0
                ELSE CHOOSE n \in 1..(Cardinality(Met(st)) + 1) : n \notin Met(st)

----------------------------------------------------------------------------
Init ==
    /\ raw = [p \in Parts |-> [i \in 1..Floor |-> 0]]
    /\ ledger = <<>> /\ clock = <<>> /\ units = <<>>
    /\ log = [s \in Shards |-> <<>>] /\ late = [s \in Shards |-> FALSE]
    /\ mem = [w \in Workers |-> [s \in Shards |-> None]]
    /\ table = [w \in Workers |-> [s \in Shards |->
         IF "old" \in Faults  \* left by a deployment of the same name
         THEN [st |-> [Start(s) EXCEPT !.at = Floor + 1], other |-> TRUE] ELSE None]]
    /\ crashes = [w \in Workers |-> Crashes]
    /\ seen = {} /\ halted = {} /\ rewound = FALSE /\ trimmed = 0
    /\ clockup = TRUE /\ jumped = FALSE

(* Records may be used once the clock's owner has passed them.               *)
Beat(p, more) ==
    /\ clockup /\ Len(clock) < Triggers
    /\ Cardinality(UNION {{q} \X ((Floor + 1)..Len(raw[q])) : q \in Parts}) + more <= Raw
    /\ raw' = [raw EXCEPT ![p] = @ \o [i \in 1..more |-> Age]]
    /\ UNCHANGED <<ledger, clock, log, units, late, mem, table, crashes, halted, rest>>

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
    /\ UNCHANGED <<raw, log, units, late, mem, table, crashes, halted, rest>>

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
    /\ LET others == {v \in Workers : mem[v][s] # None} IN
       IF others = {} THEN UNCHANGED crashes ELSE \E v \in others : Spend(v)
    /\ log' = [log EXCEPT ![s] = Done(@)]
    /\ units' = SelectSeq(units, LAMBDA one : one[1] = s => one[2] <= Len(log'[s]))
    /\ late' = [late EXCEPT ![s] = FALSE]
    /\ LET believed == Ahead(w, s) /\ Mistake \in {"table", "genesis"}
           st == IF believed THEN table[w][s].st ELSE StateIn(s, Done(log[s]))
           fenced == [v \in Workers |-> [mem[v] EXCEPT ![s] =
               IF @ = None \/ Mistake # "stale" THEN None ELSE [@ EXCEPT !.live = FALSE]]]
       IN IF Ahead(w, s) /\ ~believed
          THEN halted' = halted \cup {w} /\ mem' = [fenced EXCEPT ![w] = [x \in Shards |-> None]]
          ELSE /\ mem' = [fenced EXCEPT ![w][s] =
                    [live |-> TRUE, part |-> 0, nonce |-> Drawn(s, st), st |-> st]]
               /\ UNCHANGED halted
    /\ UNCHANGED <<raw, ledger, clock, table, rest>>

(* A rebalance takes a shard away, in the middle of whatever it does.        *)
Close(w, s) ==
    /\ "close" \in Faults /\ mem[w][s] # None /\ Forget(w, s)
    /\ UNCHANGED <<logs, late, table, crashes, halted, rest>>

(* A shard that has not noticed learns of it at its next request.            *)
Refused(w, s) ==
    /\ mem[w][s] # None /\ ~mem[w][s].live /\ NextOf(s, mem[w][s]) # None
    /\ Forget(w, s)
    /\ UNCHANGED <<logs, late, table, crashes, halted, rest>>

Holds(w, s, part) == mem[w][s] # None /\ mem[w][s].live /\ mem[w][s].part = part

(* Part 1: compute the step from committed state, and write its outputs.     *)
(* Part 2: the changed rows and the marker. They are apart only where the    *)
(* transaction may be ended in between.                                      *)
Begin(w, s) ==
    LET next == NextOf(s, mem[w][s])
        apart == "late" \in Faults
        written(out) ==
            /\ log' = [log EXCEPT ![s] = Append(@,
                 [out |-> out, st |-> IF apart THEN None ELSE next.st, open |-> TRUE])]
            /\ units' = IF s \in Parts /\ ~Direct /\ out # None
                        THEN Append(units, <<s, Len(log'[s])>>) ELSE units
            /\ seen' = IF s = "sums" /\ out # None THEN seen \cup {out} ELSE seen
            /\ mem' = [mem EXCEPT ![w][s].part = IF apart THEN 1 ELSE 2]
    IN
    /\ Holds(w, s, 0) /\ next # None
    /\ ~(jumped /\ Mistake = "sleep" /\ s = "sums")
    /\ \/ written(next.out) /\ UNCHANGED crashes
       \/ /\ next.out # None /\ "refuse" \in Faults /\ Spend(w)  \* the broker refuses the batch
          /\ IF Mistake = "refusal" THEN written(None) ELSE Forget(w, s) /\ UNCHANGED <<log, units, seen>>
    /\ UNCHANGED <<raw, ledger, clock, late, table, halted, rewound, trimmed, clockup, jumped>>

Write(w, s) ==
    LET st == NextOf(s, mem[w][s]).st IN
    /\ Holds(w, s, 1)
    /\ log' = [log EXCEPT ![s] = IF Hangs(@) THEN [@ EXCEPT ![Len(@)].st = st]
                                 ELSE Append(@, [out |-> None, st |-> st, open |-> TRUE])]
    /\ mem' = [mem EXCEPT ![w][s].part = 2]
    /\ UNCHANGED <<raw, ledger, clock, units, late, table, crashes, halted, rest>>

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
    /\ UNCHANGED <<raw, ledger, clock, units, table, halted, rest>>

(* The request arrives in its epoch, and ends what is open by now.           *)
Arrive(s) ==
    /\ late[s] /\ late' = [late EXCEPT ![s] = FALSE]
    /\ log' = [log EXCEPT ![s] = Ended(@)]
    /\ UNCHANGED <<raw, ledger, clock, units, mem, table, crashes, halted, rest>>

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
Rewind ==
    /\ "rewind" \in Faults /\ ~rewound /\ rewound' = TRUE
    /\ \E n \in 1..Len(clock), b \in 0..Len(Done(log["bound"])), r \in 0..Len(Done(log["sums"])) :
         LET kept == [s \in Shards |-> SubSeq(log[s], 1, IF s = "bound" THEN b ELSE r)]
             gone == {s \in Shards : Len(kept[s]) < Len(Done(log[s]))}
             first == StateIn("bound", kept["bound"])
         IN
         /\ ledger' = SelectSeq(ledger, LAMBDA c : \E i \in 1..n : clock[i].charge = c.salt)
         /\ seen' = {one \in seen : \E i \in 1..Len(ledger') : ledger'[i].salt = one.charge}
         /\ seen' # {}
         /\ first.trigger <= n /\ StateIn("sums", kept["sums"]).at <= b
         /\ \E i \in Max(first.at, Cut(n, "bound"))..Cut(n + 1, "bound") :
              raw' = [p \in Parts |-> SubSeq(raw[p], 1, i)]
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
    /\ UNCHANGED <<units, crashes, halted, clockup, jumped>>

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
    \/ Direct /\ "rewind" \notin Faults
    \/ NextOf(s, [st |-> StateIn(s, Done(log[s])), nonce |-> 0]) # None
Work(w, s) == (Due(s) /\ Open(w, s)) \/ Refused(w, s) \/ Begin(w, s) \/ Write(w, s) \/ Commit(w, s)
Next ==
    \/ Trigger \/ Rewind \/ Jump \/ Trim
    \/ \E p \in Parts : Beat(p, 1)
    \/ \E s \in Shards : Arrive(s)
    \/ \E w \in Workers : Crash(w) \/ \E s \in Shards : Work(w, s) \/ Close(w, s)

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Trigger) /\ \A w \in Workers, s \in Shards : WF_vars(Work(w, s))

----------------------------------------------------------------------------
(* What must hold.                                                           *)

Paid == \A i \in Releases : \E j \in 1..Len(ledger) :
    ledger[j].salt = Rel(i).charge /\ ledger[j].epoch = EpochOf(Rel(i).trigger)
Once == \A n \in 1..Triggers : Cardinality(Released(n)) <= 1
Exact == \A i \in Releases : Rel(i).trigger <= Len(clock) /\ Rel(i).content = Accepted(Rel(i).trigger)
OneNoise == \A a, b \in seen :
    (a.charge = b.charge /\ a.trigger = b.trigger /\ a.nonce = b.nonce) => a.content = b.content
Bounded == \A e \in Epochs :
    Cardinality(UNION {Rel(i).content : i \in {j \in Releases : EpochOf(Rel(j).trigger) = e}}) <= Bound
AllReleased == <>(\A n \in 1..Triggers : Released(n) # {})
=============================================================================
