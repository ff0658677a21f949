"""The frozen base model: decoder states for learning; start, step and reorder for decoding."""

from ibidem.model.base import BaseModel, States, fingerprint_network
from ibidem.model.cuda_static import CudaStaticDecoding, StaticShape
from ibidem.model.decoding import Decoding, Spans, Step, mean_states, pad_ids
from ibidem.model.fast_marian import FastMarian
from ibidem.model.loading import GENERAL_FOLDER, SHIPPED, find_folder, load_model, resolve_device, save_folder
from ibidem.model.tokens import LanguagePair, Tokens

__all__ = [
    "GENERAL_FOLDER",
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
    "find_folder",
    "fingerprint_network",
    "load_model",
    "mean_states",
    "pad_ids",
    "resolve_device",
    "save_folder",
]
