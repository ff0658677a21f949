"""The values of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ibidem.native.library import dense, require

if TYPE_CHECKING:
    from torch import Tensor


def look_up(table: Tensor, entries: Tensor) -> Tensor:
    """The value of each entry [r, k] in a table [n] int64, n at least 1; that of the first where there is none (-1)."""
    plain, wanted = dense(table, torch.int64), dense(entries, torch.int64)
    values = torch.empty(wanted.shape, dtype=torch.int64)
    done = require().look_up(plain.data_ptr(), len(plain), wanted.data_ptr(), wanted.numel(), values.data_ptr())
    if not done:
        raise IndexError(f"an entry is none of the {len(plain)} whose values are known")
    return values
