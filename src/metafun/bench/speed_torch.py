"""The paper's regression model in PyTorch, with the parameters of ours, as one would write it there; and a peer.

It has the attention, the MLP update and the conditioned decoder of Table 1. This module needs torch.
"""

import math
from collections.abc import Callable

import jax
import numpy as np
import torch
from torch import Tensor, nn

from ..config import Experiment
from ..model.decoders import Conditioned
from ..model.metafun import MetaFun
from ..model.nn import MLP
from ..model.pooling import Attention
from ..model.updates import MLPUpdate
from ..tasks import Sinusoid, SinusoidTasks

Tasks = tuple[Tensor, Tensor, Tensor]


def device() -> torch.device:
    """The GPU if JAX uses one too."""
    return torch.device("cuda" if jax.default_backend() == "gpu" and torch.cuda.is_available() else "cpu")


class Twin(nn.Module):
    """The same function as `model`, for a batch of tasks.

    Args:
        model: the model of Table 1.
    """

    def __init__(self, model: MetaFun):
        super().__init__()
        (pooling,), (update,), decoder = model.pools, model.updates, model.decode
        assert isinstance(pooling, Attention) and isinstance(update, MLPUpdate) and isinstance(decoder, Conditioned)
        self.a, self.u = _network(pooling.a), _network(update.mlp)
        self.decoder = nn.ModuleList(_network(layer)[0] for layer in decoder.layers)
        self.step_size = nn.Parameter(torch.tensor(float(model.step_size)))
        self.iterations, self.size, self.seen = model.iterations, update.mlp.weights[-1].shape[1], decoder.seen

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        """k(x, xᵢ): the softmax over the context."""
        logits = q @ k.mT / math.sqrt(q.shape[-1])
        return torch.softmax(logits.masked_fill(~mask[:, None], -math.inf), -1)

    def encode(self, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The embedded context and Σₜ uᵢ⁽ᵗ⁾."""
        keys = self.a(x)
        weights = self.weights(keys, keys, mask)
        r, total = torch.zeros(*x.shape[:-1], self.size, device=x.device), None
        for _ in range(self.iterations):
            u = self.u(torch.cat([x, y, r], -1))
            r, total = r - self.step_size * (weights @ u), u if total is None else total + u
        assert total is not None
        return keys, total

    def predict(self, keys: Tensor, total: Tensor, mask: Tensor, x: Tensor) -> Tensor:
        """The predicted mean at x."""
        r = -self.step_size * (self.weights(self.a(x), keys, mask) @ total)
        r = r[..., : self.seen]
        h = self.decoder[0](torch.cat([r, x], -1))
        for layer in self.decoder[1:]:
            h = layer(torch.cat([torch.relu(h), r], -1))
        return h[..., :1]

    def loss(self, context: Tasks, target: Tasks) -> Tensor:
        """The mean squared error of the target plus that of the context."""
        x, y, mask = (torch.cat(pair, 1) for pair in zip(context, target, strict=True))
        errors = torch.square(self.predict(*self.encode(*context), context[2], x) - y)[..., 0] * mask
        n = context[2].shape[1]
        parts = (errors[:, part].sum(1) / mask[:, part].sum(1) for part in (slice(n), slice(n, None)))
        return sum(parts, torch.zeros((), device=x.device)).mean()


def _network(mlp: MLP) -> nn.Sequential:
    """The same network: linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        linear = nn.Linear(*weight.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(np.asarray(weight)).T)
            linear.bias.copy_(torch.tensor(np.asarray(bias)))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def sinusoids(source: Sinusoid, batch: int) -> tuple[Tasks, Tasks]:
    """Contexts and targets drawn on the device, as `Sinusoid.sample` does.

    Args:
        source: the distribution.
        batch: number of tasks.
    """
    where, (least, most) = device(), source.context
    amplitude = 0.1 + 4.9 * torch.rand(batch, 1, 1, device=where)
    phase = math.pi * torch.rand(batch, 1, 1, device=where)
    n = torch.randint(least, most + 1, (batch, 1), device=where)
    x = source.low + (source.high - source.low) * torch.rand(batch, most + source.targets, 1, device=where)
    y = amplitude * torch.sin(x - phase)
    m = torch.minimum(torch.tensor(source.targets, device=where), source.points - n)
    mask, target = (torch.arange(size, device=where) < count for size, count in ((most, n), (source.targets, m)))
    return (x[:, :most], y[:, :most], mask), (x[:, most:], y[:, most:], target)


class TwinTraining:
    """Steps of Adam on batches of sinusoids.

    Args:
        experiment: tasks, batch and learning rate.
        model: where the parameters start.
        steps: steps of a call.
        is_compiled: whether loss and gradient are compiled.
    """

    def __init__(self, experiment: Experiment, model: MetaFun, steps: int, *, is_compiled: bool):
        twin = Twin(model).to(device())
        loss = _compiled(twin.loss) if is_compiled else twin.loss
        self._step, self.units = _stepper(experiment, twin, lambda tasks: loss(*tasks)), steps

    def __call__(self) -> object:
        return [self._step() for _ in range(self.units)][-1].item()


class PeerTraining:
    """The same training of the attentive conditional neural process of the package neuralprocesses.

    Args:
        experiment: tasks, batch and learning rate.
        steps: steps of a call.
    """

    def __init__(self, experiment: Experiment, steps: int):
        import neuralprocesses.torch as nps

        peer = nps.construct_acnp(dim_x=1, dim_y=1, likelihood="het").to(device())

        def loss(tasks: tuple[Tasks, Tasks]) -> Tensor:
            # It takes sets of one size, so padding counts as points here.
            (x, y, _), (at, values, _) = tasks
            return -nps.loglik(peer, x.mT, y.mT, at.mT, values.mT, normalise=True).mean()

        with torch.no_grad():
            loss(sinusoids(_source(experiment), 2))  # its layers take their sizes from the first call
        self._step, self.units = _stepper(experiment, peer, loss), steps

    def __call__(self) -> object:
        return [self._step() for _ in range(self.units)][-1].item()


def _source(experiment: Experiment) -> Sinusoid:
    """The distribution of the training tasks."""
    assert isinstance(experiment.tasks, SinusoidTasks)
    return experiment.tasks.training()


def _stepper(
    experiment: Experiment, module: nn.Module, loss: Callable[[tuple[Tasks, Tasks]], Tensor]
) -> Callable[[], Tensor]:
    """A function that does one step of Adam on a new batch and returns its loss."""
    source, training = _source(experiment), experiment.training
    optimiser = torch.optim.Adam(module.parameters(), training.learning_rate)

    def step() -> Tensor:
        value = loss(sinusoids(source, training.batch))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        return value.detach()

    return step


class TwinPrediction:
    """Targets of a task that is encoded once."""

    units = 1

    def __init__(self, model: MetaFun, x: np.ndarray, y: np.ndarray, at: np.ndarray, *, is_compiled: bool):
        twin = Twin(model).to(device())
        inputs, outputs, self._at = (torch.tensor(a, device=device())[None] for a in (x, y, at))
        self._mask = torch.ones(1, len(x), dtype=torch.bool, device=device())
        with torch.no_grad():
            self._encoded = twin.encode(inputs, outputs, self._mask)
        self._predict = _compiled(twin.predict) if is_compiled else twin.predict

    def __call__(self) -> np.ndarray:
        with torch.no_grad():
            return self._predict(*self._encoded, self._mask, self._at)[0].cpu().numpy()


def _compiled(function: Callable) -> Callable:
    """Compiled as PyTorch does best: with CUDA graphs on a GPU."""
    return torch.compile(function, mode="reduce-overhead" if device().type == "cuda" else None)
