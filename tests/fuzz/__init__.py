"""Hostile input for every parser of what others may write: `python -m tests.fuzz --minutes 10`.

Each target is fed mutants of real input in a process of its own, so that a crash is seen, with a
limit of time for each case and of memory for all. Cases are a function of the seed and their
number: a failing one is found again by both.
"""
