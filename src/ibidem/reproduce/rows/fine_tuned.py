"""A test set translated by the base model after full fine-tuning, without any memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from safetensors.torch import load_file

from ibidem.decode import SearchSettings, Translator
from ibidem.model import load_model
from ibidem.reproduce.bootstrap import MATCHES, count_matches
from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.rows.translation import AUTHORS, score_figures
from ibidem.reproduce.stages import WEIGHTS, FineTuned

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage


@dataclass(frozen=True)
class FineTunedTranslation:
    """The test set of a domain, translated by a fine-tuned model."""

    model: FineTuned
    test: str
    search: SearchSettings = AUTHORS

    alone: ClassVar[bool] = False

    @property
    def name(self) -> str:
        settings = self.model.settings
        corpus = "+".join(self.model.corpus)
        return f"{self.test}/test fine-tuned on {corpus} {settings.updates} updates seed={settings.seed}"

    @property
    def seed(self) -> int:
        return self.model.settings.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (self.model,)

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return ((self.test, "test"),)

    def expected(self, _pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 50

    def measure(self, bench: Workspace) -> Measured:
        sources, references = bench.pairs(self.test, "test")
        tuned = load_model(bench.setting.model, device=bench.setting.device)
        tuned.network.load_state_dict(load_file(bench.folder(self.model) / WEIGHTS, str(bench.device)))
        translator = Translator(tuned, settings=self.search, batch_size=bench.batch_size, piece_tokens=None)
        translations = translator.translate(sources)
        notes = {"stages": {"finetuned": bench.notes(self.model)}}
        figures = {**score_figures(translations, references), **notes}
        return Measured(figures, {MATCHES: count_matches(translations, references)}, translations)
