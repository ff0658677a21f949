"""Connected components by labels that only ever fall: hooking of roots and pointer jumping, without recursion."""

from __future__ import annotations

import torch
from torch import Tensor


def merge_linked(roots: Tensor, links: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Join the components of all nodes that are linked; one call for each tile, in any order, joins all.

    roots: [nodes] int64, for each node the lowest known node of its component, a root of itself; links: [f, r, c]
    bool, between the nodes rows [f, r] and columns [f, c]. Gives the new roots, with the same properties.
    """
    beyond = len(roots)
    while True:
        left, right = roots[rows], roots[columns]
        narrow_left, narrow_right = left.to(torch.int32)[:, :, None], right.to(torch.int32)[:, None, :]
        crossing = links & (narrow_left != narrow_right)
        if int(crossing.count_nonzero()) == 0:
            return roots
        for own, other, dim in ((left, narrow_right, 2), (right, narrow_left, 1)):
            lowest = torch.where(crossing, other, beyond).amin(dim)
            roots = roots.scatter_reduce(0, own.flatten(), lowest.flatten().to(torch.int64), "amin")
        roots = _flatten_trees(roots)


def _flatten_trees(roots: Tensor) -> Tensor:
    """Let every node point at the root of its tree; every node points at a lower one or at itself."""
    while True:
        above = roots[roots]
        if torch.equal(above, roots):
            return roots
        roots = above
