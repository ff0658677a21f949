"""From a corpus to a memory: extract, index, tune, and the recipe that runs them all."""

from ibidem.learn.examples import Examples, gather_examples
from ibidem.learn.extraction import ExtractSettings, extract
from ibidem.learn.grid import tune_fixed
from ibidem.learn.indexing import index_memory
from ibidem.learn.metak import MetaKSettings, train_adaptive
from ibidem.learn.recipe import LearnSettings, learn
from ibidem.learn.tuning import TuneSettings, tune

__all__ = [
    "Examples",
    "ExtractSettings",
    "LearnSettings",
    "MetaKSettings",
    "TuneSettings",
    "extract",
    "gather_examples",
    "index_memory",
    "learn",
    "train_adaptive",
    "tune",
    "tune_fixed",
]
