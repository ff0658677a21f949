"""The paper's tables and figures, each from declared rows that are measured once and kept."""

TABLES = (
    "datasets",
    "redundancy",
    "intro-speed",
    "compact",
    "domains",
    "limited-data",
    "pruning",
    "pruning-curve",
    "latency",
    "optimal",
    "dimensions",
    "parameters",
    "visualise",
    "cases",
    "fine-tuning",
    "orderings",
)
