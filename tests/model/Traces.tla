------------------------------- MODULE Traces -------------------------------
(* Whether the model can do what workers did: runs of the simulation, told   *)
(* as its actions. A product's transaction stands for as many of the model's *)
(* as it has items. Module Observed is written for each batch of runs.       *)
EXTENDS Hushstream, Observed

VARIABLES
    run,   \* number of the run
    at,    \* its next action
    sent,  \* whether the action's transaction has been written, and not ended
    names  \* pairs of a nonce as it was published, and as it is here

Every(st) == {one.nonce : one \in seen}  \* a nonce is drawn once for all triggers
    \cup {log["sums"][i].st.nonce : i \in 1..Len(log["sums"])}
    \cup {mem[v]["sums"].nonce : v \in {u \in Workers : mem[u]["sums"] # None}}
Step == Runs[run][at]
On == at' = at + 1

(* What a transaction wrote is what was seen.                                *)
Fits(what, w, s, n, count, charge, nonce) ==
    LET one == log'[s][Len(log'[s])]
        before == mem[w][s].st
        release == /\ one.out # None /\ one.out.trigger = n /\ one.out.charge = <<0, charge>>
                   /\ \A pair \in names : (pair[1] = nonce) = (pair[2] = one.out.nonce)
                   /\ names' = names \cup {<<nonce, one.out.nonce>>}
    IN CASE what = "rec" -> one.out # None /\ "rec" \in DOMAIN one.out /\ UNCHANGED names
         [] what = "barrier" -> one.out = [barrier |-> n, from |-> "bound"] /\ UNCHANGED names
         [] what = "take" -> one.out = None /\ one.st.closed = before.closed /\ UNCHANGED names
         [] what = "close" -> /\ one.out = None /\ before.closed # n /\ one.st.closed = n
                              /\ Cardinality(one.st.content) = count /\ UNCHANGED names
         [] what \in {"release", "tried"} -> release
         [] OTHER -> UNCHANGED names

Follow ==
    /\ at <= Len(Runs[run]) /\ UNCHANGED run
    /\ LET what == Step[1]  w == Step[2]  s == Step[3]  n == Step[4]  count == Step[5] IN
       CASE what = "beat" -> Beat("bound", CHOOSE u \in Units : TRUE, n - Len(raw["bound"])) /\ On /\ UNCHANGED <<sent, names>>
         [] what = "trigger" ->
              /\ Trigger /\ On /\ UNCHANGED <<sent, names>>
              /\ clock'[Len(clock')] = [cut |-> [bound |-> n], charge |-> <<0, Step[6]>>]
              /\ Len(ledger') = Len(ledger) + count
         [] what = "open" ->
              /\ UNCHANGED <<sent, names>>
              /\ IF mem[w][s] # None THEN Close(w, s) /\ UNCHANGED at ELSE Open(w, s) /\ On
         [] what = "state" ->  \* as it was restored; of another owner by now it is nothing
              /\ mem[w][s] # None => mem[w][s].st.closed = n /\ mem[w][s].st.out = count
              /\ On /\ UNCHANGED <<vars, sent, names>>
         [] what = "half" ->
              /\ UNCHANGED <<sent, names>>
              /\ IF mem[w][s] # None THEN Close(w, s) /\ UNCHANGED at ELSE Half(w) /\ On
         [] what = "late" ->  \* a request to open comes again: whoever holds the shard keeps its state
              On /\ UNCHANGED <<vars, sent, names>>
         [] OTHER ->
              IF sent THEN Commit(w, s) /\ On /\ sent' = FALSE /\ UNCHANGED names
              ELSE /\ Begin(w, s) /\ Fits(what, w, s, n, count, Step[6], Step[7])
                   /\ IF what \in {"attempt", "tried"} THEN On /\ UNCHANGED sent
                      ELSE sent' = TRUE /\ UNCHANGED at

Begins == Init /\ run \in 1..Len(Runs) /\ at = 1 /\ sent = FALSE /\ names = {}
Followed == Begins /\ [][Follow]_<<vars, run, at, sent, names>>
Told == at > Len(Runs[run]) => PrintT(<<"accepted", run>>)
=============================================================================
