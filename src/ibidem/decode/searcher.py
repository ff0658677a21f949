"""Beam search by the fastest way that the model, the memories and the request allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibidem.decode.fused import CudaGraphSearch
from ibidem.decode.search import beam_search, limits_of, never_stop, rules_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ibidem.decode.beams import Hypothesis
    from ibidem.decode.scoring import Scorer
    from ibidem.decode.search import Check, SearchSettings
    from ibidem.model import BaseModel


class BeamSearcher:
    """Searches with one model; what was recorded for a scorer is kept until another one comes."""

    def __init__(self, model: BaseModel) -> None:
        self._model = model
        self._recorded: tuple[Scorer, CudaGraphSearch] | None = None

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        scorer: Scorer,
        prefixes: Sequence[Sequence[int]] | None = None,
        check: Check = never_stop,
    ) -> list[list[Hypothesis]]:
        """See `beam_search`."""
        fused = self._fused(scorer) if prefixes is None and sources else None
        if fused is None:
            return beam_search(self._model, sources, settings, scorer, prefixes, check=check)
        model = self._model
        return fused.search(sources, rules_of(model, settings), limits_of(model, sources, settings), check)

    def _fused(self, scorer: Scorer) -> CudaGraphSearch | None:
        """The search of fixed shape, where there is a GPU to record it."""
        network = self._model.lean
        if self._model.device.type != "cuda" or network is None or not scorer.supports_cuda_graph:
            return None
        if self._recorded is None or self._recorded[0] is not scorer:
            self._recorded = (scorer, CudaGraphSearch(self._model, network, scorer))
        return self._recorded[1]
