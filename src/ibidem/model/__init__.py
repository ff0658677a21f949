"""The frozen base model: decoder states for learning; start, step and reorder for decoding."""

from ibidem.model.base import BaseModel, States, fingerprint_network
from ibidem.model.cuda_static import CudaStaticDecoding, StaticShape
from ibidem.model.decoding import Decoding, Spans, Step, mean_states, pad_ids
from ibidem.model.fast_marian import FastMarian
from ibidem.model.loading import GENERAL_FOLDER, find_folder, load_model, resolve_device, save_folder
from ibidem.model.registry import SHIPPED, KnownModel, add_model, added_models, known_models, remove_model
from ibidem.model.tokens import LanguagePair, Tokens

__all__ = [
    "GENERAL_FOLDER",
    "SHIPPED",
    "BaseModel",
    "CudaStaticDecoding",
    "Decoding",
    "FastMarian",
    "KnownModel",
    "LanguagePair",
    "Spans",
    "States",
    "StaticShape",
    "Step",
    "Tokens",
    "add_model",
    "added_models",
    "find_folder",
    "fingerprint_network",
    "known_models",
    "load_model",
    "mean_states",
    "pad_ids",
    "remove_model",
    "resolve_device",
    "save_folder",
]
