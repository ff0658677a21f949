"""Executors: run idempotent tasks in processes of this machine, on a Ray cluster, or as Slurm jobs.

`open_executor` makes one of three implementations of one protocol. Ray and submitit are imported when they are used.
"""

from __future__ import annotations

from ibidem.executor.executor import Executor, Result, check_workers
from ibidem.executor.local import LocalExecutor
from ibidem.executor.opening import open_executor
from ibidem.executor.ray import RayExecutor
from ibidem.executor.slurm import SlurmExecutor

__all__ = [
    "Executor",
    "LocalExecutor",
    "RayExecutor",
    "Result",
    "SlurmExecutor",
    "check_workers",
    "open_executor",
]
