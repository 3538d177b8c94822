"""The process: Faust agents, shards and their transactions, metrics and health.

It is the only room that runs tasks. What a release contains is decided in ``stages`` and ``clock``,
never here.
"""
