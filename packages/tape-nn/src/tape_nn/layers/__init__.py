"""Layers: Modules that map one tensor to another. Those with Variables make them at the first call."""

from typing import TYPE_CHECKING

from tape_nn.hints import missing
from tape_nn.layers.attention import MultiHeadAttention
from tape_nn.layers.base import ACTIVATIONS, Layer
from tape_nn.layers.convolution import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    Conv1D,
    Conv2D,
    Conv3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
)
from tape_nn.layers.core import Activation, Dense, Dropout, Embedding, Flatten, Sequential
from tape_nn.layers.normalization import BatchNorm, LayerNorm, RMSNorm
from tape_nn.layers.recurrent import GRU, LSTM, SimpleRNN

__all__ = [
    "ACTIVATIONS",
    "GRU",
    "LSTM",
    "Activation",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNorm",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "LayerNorm",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
    "SimpleRNN",
]


if not TYPE_CHECKING:
    __getattr__ = missing(__name__, lambda: __all__)
