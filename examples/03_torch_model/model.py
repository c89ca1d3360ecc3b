"""A small network whose inner values bear names."""

import torch
from torch import nn

from debugtaps import tap


class Block(nn.Module):
    """A residual block with an Elu."""

    def __init__(self, width: int, name: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm, self.name = nn.LayerNorm(width), name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.elu(self.first(x))
        return tap(self.norm(x + self.second(hidden)), self.name)


class Model(nn.Module):
    """Three blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(32, f"block{n}") for n in range(3)))
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(tap(self.head(self.blocks(x)), "logits"), dim=-1)


def get_fwd_args() -> tuple[torch.Tensor, ...]:
    """Returns what the model is called with."""
    return (torch.randn(4, 32, generator=torch.Generator().manual_seed(0)),)
