"""The paper's tables and figures, each from declared rows that are measured once and kept."""

TABLES = (
    "compact",
    "domains",
    "limited-data",
    "pruning",
    "pruning-curve",
    "optimal",
    "dimensions",
)
