"""The frozen base model: decoder states for learning; start, step and reorder for decoding."""

from ibidem.model.base import BaseModel, States
from ibidem.model.cuda_static import CudaStaticDecoding, StaticShape
from ibidem.model.decoding import Decoding, Spans, Step, mean_states, pad_ids
from ibidem.model.fast_marian import FastMarian
from ibidem.model.loading import SHIPPED, load_model, resolve_device
from ibidem.model.tokens import LanguagePair, Tokens

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
    "mean_states",
    "pad_ids",
    "resolve_device",
]
