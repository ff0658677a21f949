"""Jobs: the tasks of a stage of learning on an executor, and their results as sealed parts under `work/`."""

from ibidem.learn.distribution import Distribution
from ibidem.learn.jobs.job import Job, Task
from ibidem.learn.jobs.parts import Part, find_part, save_array, seal_part
from ibidem.learn.jobs.worker import Context, ModelSource, describe_environment, perform

__all__ = [
    "Context",
    "Distribution",
    "Job",
    "ModelSource",
    "Part",
    "Task",
    "describe_environment",
    "find_part",
    "perform",
    "save_array",
    "seal_part",
]
