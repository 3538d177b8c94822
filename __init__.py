"""Hushstream: differentially private releases from unbounded Kafka streams.

The public names of the product. They are imported when they are first used, so that
``import hushstream`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agents.deployment.compile import compile_config
    from .client import Budget, Client, ReportStore, Survey
    from .errors import (
        BrokerError,
        ConfigError,
        ContractError,
        DamagedError,
        EngineError,
        ExtraError,
        HushError,
        KeyOutageError,
        LedgerError,
        OutageError,
        ParameterError,
        RecordError,
        RewoundError,
        RightError,
        SnapshotError,
        TrimmedError,
    )
    from .mechanisms.contract import Mechanism, Noise, Setting
    from .mechanisms.entry import Entry
    from .mechanisms.noise import KeyedNoise
    from .offline.loading import produce
    from .offline.simulate import simulate
    from .reading.client import follow_releases, read_releases
    from .reading.maps import cells_of, map_before, points_of
    from .reading.regrid import Regridded, regrid
    from .reading.tables import table_of
    from .topics.assembly import Released
    from .topics.config.load import load, loads

_WHERE = {
    "BrokerError": ".errors",
    "Budget": ".client",
    "Client": ".client",
    "ConfigError": ".errors",
    "ContractError": ".errors",
    "DamagedError": ".errors",
    "EngineError": ".errors",
    "Entry": ".mechanisms.entry",
    "ExtraError": ".errors",
    "HushError": ".errors",
    "KeyOutageError": ".errors",
    "KeyedNoise": ".mechanisms.noise",
    "LedgerError": ".errors",
    "Mechanism": ".mechanisms.contract",
    "Noise": ".mechanisms.contract",
    "OutageError": ".errors",
    "ParameterError": ".errors",
    "RecordError": ".errors",
    "Regridded": ".reading.regrid",
    "Released": ".topics.assembly",
    "ReportStore": ".client",
    "RewoundError": ".errors",
    "RightError": ".errors",
    "Setting": ".mechanisms.contract",
    "SnapshotError": ".errors",
    "Survey": ".client",
    "TrimmedError": ".errors",
    "cells_of": ".reading.maps",
    "compile_config": ".agents.deployment.compile",
    "follow_releases": ".reading.client",
    "load": ".topics.config.load",
    "loads": ".topics.config.load",
    "map_before": ".reading.maps",
    "points_of": ".reading.maps",
    "produce": ".offline.loading",
    "read_releases": ".reading.client",
    "regrid": ".reading.regrid",
    "simulate": ".offline.simulate",
    "table_of": ".reading.tables",
}

__all__ = [
    "BrokerError",
    "Budget",
    "Client",
    "ConfigError",
    "ContractError",
    "DamagedError",
    "EngineError",
    "Entry",
    "ExtraError",
    "HushError",
    "KeyOutageError",
    "KeyedNoise",
    "LedgerError",
    "Mechanism",
    "Noise",
    "OutageError",
    "ParameterError",
    "RecordError",
    "Regridded",
    "Released",
    "ReportStore",
    "RewoundError",
    "RightError",
    "Setting",
    "SnapshotError",
    "Survey",
    "TrimmedError",
    "cells_of",
    "compile_config",
    "follow_releases",
    "load",
    "loads",
    "map_before",
    "points_of",
    "produce",
    "read_releases",
    "regrid",
    "simulate",
    "table_of",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
