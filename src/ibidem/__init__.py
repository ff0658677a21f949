"""ibidem: a translator with a memory that can cite its sources.

>>> from ibidem import Memory, Translator
>>> memory = Memory.learn(train="it.tmx", dev="dev.tsv", path="memories/it")   # doctest: +SKIP
>>> Translator(memory=memory).translate(["Zwischenablage einfügen"])          # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ibidem.errors import IbidemError

if TYPE_CHECKING:
    from ibidem.api import Memory, adapt
    from ibidem.decode import Translator
    from ibidem.learn import MemoryWriter

__version__ = "0.1.0"
__all__ = ["IbidemError", "Memory", "MemoryWriter", "Translator", "__version__", "adapt"]


def __getattr__(name: str) -> Any:
    """Import a public class or function, and the packages that it needs, at its first use."""
    if name == "adapt":
        from ibidem.api import adapt

        return adapt
    if name == "Memory":
        from ibidem.api import Memory

        return Memory
    if name == "MemoryWriter":
        from ibidem.learn import MemoryWriter

        return MemoryWriter
    if name == "Translator":
        from ibidem.decode import Translator

        return Translator
    raise AttributeError(f"module 'ibidem' has no attribute '{name}'")
