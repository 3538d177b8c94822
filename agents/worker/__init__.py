"""The process: Faust agents, shards and their transactions, metrics and health.

It alone runs tasks. What a release contains is decided in ``stages`` and ``clock``, never here.
"""
