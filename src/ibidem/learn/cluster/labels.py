"""What a label says of an entry: the number of its cluster, or one of these."""

from __future__ import annotations

NOISE = -1
"""Clustered, and near to too few keys of its family to belong to a cluster."""

UNSAMPLED = -2
"""Of a family above the bound, and not drawn into the sample that was clustered."""

EXCLUDED = -3
"""Of a token that is not clustered at all, such as padding."""
