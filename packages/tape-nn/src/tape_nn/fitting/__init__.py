"""Training loops: `fit`, `evaluate` and `predict`, callbacks, and runs that can be resumed."""

from tape_nn.fitting.callbacks import Callback, EarlyStopping, LearningRate, SaveBest
from tape_nn.fitting.data import unpack, with_class_weights
from tape_nn.fitting.loops import evaluate, fit, predict
from tape_nn.fitting.run import History, Run, test_step, train_step
from tape_nn.fitting.saving import LoadedRun, load_run, save_run

__all__ = [
    "Callback",
    "EarlyStopping",
    "History",
    "LearningRate",
    "LoadedRun",
    "Run",
    "SaveBest",
    "evaluate",
    "fit",
    "load_run",
    "predict",
    "save_run",
    "test_step",
    "train_step",
    "unpack",
    "with_class_weights",
]
