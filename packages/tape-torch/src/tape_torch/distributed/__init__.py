"""Programs in several processes, by torch.distributed: their checkpoints, and what happens when one fails."""

from tape_torch.distributed.checkpoints import Loaded, Saving, latest, load, save
from tape_torch.distributed.failures import PeerError, watched

__all__ = ["Loaded", "PeerError", "Saving", "latest", "load", "save", "watched"]
