"""The frozen base model: decoder states for learning; start, step and reorder for decoding."""

from ibidem.model.base import BaseModel, States
from ibidem.model.cuda_static import CudaStaticDecoding, StaticShape
from ibidem.model.decoding import Decoding, Spans, Step, pad_ids
from ibidem.model.fast_marian import FastMarian
from ibidem.model.loading import SHIPPED, general_file, load_model, resolve_device
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
    "general_file",
    "load_model",
    "pad_ids",
    "resolve_device",
]
