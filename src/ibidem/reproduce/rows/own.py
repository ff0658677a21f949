"""The sentences written for this project, translated by a system: what may be shown of it in public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ibidem.decode import SearchSettings, Translator
from ibidem.reproduce.bootstrap import MATCHES, count_matches
from ibidem.reproduce.rows.row import Measured
from ibidem.reproduce.rows.translation import AUTHORS, describe_stages, name_system, open_scorer, score_figures
from ibidem.reproduce.smoke import own_sentences
from ibidem.reproduce.system import System, assemble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ibidem.reproduce.bench import Workspace
    from ibidem.reproduce.stages import Stage


@dataclass(frozen=True)
class OwnTranslation:
    """Our own sentences of one of our domains, translated by a system."""

    system: System
    domain: str = "software"
    search: SearchSettings = AUTHORS

    alone: ClassVar[bool] = False
    texts: ClassVar[tuple[tuple[str, str], ...]] = ()

    @property
    def name(self) -> str:
        return f"own/{self.domain} {name_system(self.system)}"

    @property
    def seed(self) -> int:
        return self.system.seed

    @property
    def stages(self) -> tuple[Stage, ...]:
        parts = assemble(self.system)
        return () if parts is None else tuple(dict.fromkeys(parts))

    def expected(self, pairs: Callable[[tuple[str, ...]], int]) -> float:
        return 10 + 3e-5 * pairs(self.system.corpus)

    def measure(self, bench: Workspace) -> Measured:
        chosen = [sentence for sentence in own_sentences() if sentence.domain == self.domain]
        references = [sentence.english for sentence in chosen]
        translator = Translator(bench.model, settings=self.search, batch_size=bench.batch_size, piece_tokens=None)
        sources, scorer = [sentence.german for sentence in chosen], open_scorer(bench, self.system)
        translations = translator.translate(sources, scorer=scorer)
        figures = {**score_figures(translations, references), **describe_stages(bench, self.stages)}
        return Measured(figures, {MATCHES: count_matches(translations, references)}, translations)
