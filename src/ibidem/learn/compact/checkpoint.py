"""A training run that can be put down and taken up again: all that changes from one update to the next."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ibidem.memory import make_directory, replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from ibidem.compact import NetworkCompactor

FILE = "compactor.pt"


@dataclass
class Run:
    """A network in training, and how far it has come."""

    network: NetworkCompactor
    objective: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.ReduceLROnPlateau
    update: int = 0
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    best_loss: float = float("inf")
    best_update: int = 0
    stale: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, loss: float) -> None:
        """Note a validation loss; the best weights are kept as a copy."""
        self.history.append((self.update, loss))
        self.stale += 1
        if loss < self.best_loss:
            self.best = {name: tensor.detach().cpu().clone() for name, tensor in self.network.state_dict().items()}
            self.best_loss, self.best_update, self.stale = loss, self.update, 0

    def save(self, workspace: Path, identity: str) -> None:
        """Write all of it in place of what was written before, at once."""
        state: dict[str, Any] = {name: getattr(self, name).state_dict() for name in _PARTS}
        state |= {name: getattr(self, name) for name in _FACTS}
        content = io.BytesIO()
        torch.save(state, content)
        make_directory(workspace)
        replace_file(workspace / FILE, _sealed(content.getvalue(), identity) + content.getvalue())

    def restore(self, workspace: Path, identity: str) -> bool:
        """Take up what was saved under this identity; another run's, or a file that is not whole, is let be."""
        try:
            stored = (workspace / FILE).read_bytes()
        except OSError:
            return False
        seal, content = stored[:_SEAL_BYTES], stored[_SEAL_BYTES:]
        if seal != _sealed(content, identity):
            return False
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        for name in _FACTS:
            setattr(self, name, state[name])
        return True


def _sealed(content: bytes, identity: str) -> bytes:
    """A digest that only the whole content of a run of this identity has."""
    return hashlib.sha256(identity.encode() + content).digest()


_PARTS = ("network", "objective", "optimizer", "scheduler")
_FACTS = ("update", "best", "best_loss", "best_update", "stale", "history", "seconds")
_SEAL_BYTES = hashlib.sha256().digest_size
