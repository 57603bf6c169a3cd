"""How many devices share a run's work, declared once. Imports nothing heavy."""

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from infra.artifacts.config import ProgramConfig
from model.architecture import ModelConfig

ExpertExchange = Literal["probe", "padded", "ragged"]
"""How tokens travel to experts on other devices. padded: cells of one fixed size, on any platform. ragged: as many rows as there are.
probe: ragged where this platform has it and agrees with padded (model/exchange_choice.py)."""


class MeshConfig(ProgramConfig):
    """The axes of a run's devices, from the slowest network to the fastest. Every axis is there, if only with one device.

    A batch is split over replica x data x expert. Every mesh computes the same function, but sums in another order: losses agree
    within 2e-6, bytes do not. So it is like the kind of device: no part of a recipe, but of what a run's provenance records.
    """

    replica: int = Field(default=1, ge=1)  # each holds all parameters; their gradients are added up once a step
    data: int | None = Field(default=None, ge=1)  # parameters are split over it, and gathered layer by layer (FSDP); None: all devices left
    expert: int = Field(default=1, ge=1)  # banks of experts are split over it, and tokens travel to them (EP)
    model: int = Field(default=1, ge=1)  # matrices are split over it, and what they compute with them (TP)
    expert_exchange: ExpertExchange = "probe"

    def on(self, devices: int) -> "MeshConfig":
        """The same mesh with its data axis settled for a number of devices.

        Raises:
            ValueError: the axes don't multiply to the devices there are.
        """
        others = self.replica * self.expert * self.model
        data = max(devices // others, 1) if self.data is None else self.data
        if others * data != devices:
            raise ValueError(
                f"mesh: replica x data x expert x model = {self.replica} x {'?' if self.data is None else self.data} x {self.expert} x "
                f"{self.model} can't be laid over the {devices} devices of this run; change an axis, or resources.device"
            )
        return self.model_copy(update={"data": data})

    @property
    def batch_shards(self) -> int:
        """Devices that a batch is split over, as far as the data axis is settled."""
        return self.replica * (self.data or 1) * self.expert

    def check(self, model: ModelConfig, batches: Iterable[int], sequence_tokens: int) -> None:
        """Refuse what can't be split so.

        Args:
            batches: sequences of every stage.

        Raises:
            ValueError: names the field.
        """
        shards, over = self.batch_shards, "the devices of replica x data x expert"
        if model.experts % self.expert:
            raise ValueError(
                f"mesh.expert = {self.expert} doesn't divide experts = {model.experts}; each of its devices holds equally many"
            )
        for sequences in batches:
            if sequences % shards:
                raise ValueError(f"batch_sequences = {sequences} can't be split over {over}: choose a multiple of {shards}")
            self._check_capacity(model, sequences * sequence_tokens)
        if model.heads % self.model:
            raise ValueError(f"mesh.model = {self.model} doesn't divide heads = {model.heads}; each of its devices computes equally many")

    def _check_capacity(self, model: ModelConfig, tokens: int) -> None:
        if model.capacity_factor is None or self.batch_shards == 1:
            return
        pieces = model.capacity_shards
        if pieces % self.batch_shards or tokens % pieces:
            raise ValueError(
                f"capacity_shards = {pieces} must be a multiple of the {self.batch_shards} devices of replica x data x expert and divide "
                f"the {tokens} tokens of a step: a piece of the batch that counts its capacity apart lies on one device; set it to "
                f"{math.lcm(pieces, self.batch_shards)}, or change the mesh"
            )
