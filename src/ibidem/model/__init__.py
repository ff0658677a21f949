"""The frozen base model behind one small interface: states for learning, start / step / reorder for decoding."""

from ibidem.model.base import BaseModel, States
from ibidem.model.decoding import Decoding, Step
from ibidem.model.loading import SHIPPED, load_model, resolve_device
from ibidem.model.tokens import Tokens

__all__ = ["SHIPPED", "BaseModel", "Decoding", "States", "Step", "Tokens", "load_model", "resolve_device"]
