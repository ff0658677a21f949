"""How many pairs were read, kept and dropped, and why."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counts:
    """The tally of one pass over a corpus; `read` is always `kept` plus all that was dropped."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def keep(self) -> None:
        """Count one pair that was kept."""
        self.read += 1
        self.kept += 1

    def drop(self, reason: str) -> None:
        """Count one pair that was left out."""
        self.read += 1
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def describe(self) -> str:
        """Say it in one line, the most frequent reason first."""
        line = f"read {self.read:,} {'pair' if self.read == 1 else 'pairs'}, kept {self.kept:,}"
        if not self.dropped:
            return line
        reasons = sorted(self.dropped.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
        return f"{line}, dropped {sum(self.dropped.values()):,} ({listed})"
