"""Fine-tuning of a base model on a domain into a new model folder."""

from ibidem.learn.adapt.adaptation import Adaptation, adapt_model, check_target
from ibidem.learn.adapt.trainer import AdaptSettings, Measurement, fine_tune, measure_loss, measure_text
from ibidem.learn.adapt.training_text import EncodedText

__all__ = [
    "AdaptSettings",
    "Adaptation",
    "EncodedText",
    "Measurement",
    "adapt_model",
    "check_target",
    "fine_tune",
    "measure_loss",
    "measure_text",
]
