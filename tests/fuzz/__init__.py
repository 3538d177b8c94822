"""Hostile input for every parser of foreign input: `python -m tests.fuzz --minutes 10`.

Each target gets mutants of real input in its own process, so that a crash is seen. Time is limited
for each case, memory for all together. A case is a function of the seed and its number, which
reproduce it.
"""
