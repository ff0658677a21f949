"""The frozen base model behind one small interface: states for learning, start / step / reorder for decoding."""

from ibidem.model.base import BaseModel, States
from ibidem.model.decoding import Decoding, Step
from ibidem.model.languages import LanguagePair
from ibidem.model.lean import FastMarian
from ibidem.model.loading import SHIPPED, load_model, resolve_device
from ibidem.model.padding import pad_ids
from ibidem.model.spans import Spans
from ibidem.model.static import CudaStaticDecoding, StaticShape
from ibidem.model.tokens import Tokens

__all__ = [
    "SHIPPED",
    "BaseModel",
    "CudaStaticDecoding",
    "Decoding",
    "FastMarian",
    "LanguagePair",
    "Spans",
    "States",
    "StaticShape",
    "Step",
    "Tokens",
    "load_model",
    "pad_ids",
    "resolve_device",
]
