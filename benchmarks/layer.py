"""The speed and the memory of a layer of units on a CPU, beside PyTorch's own activations.

    python benchmarks/layer.py [--rounds N] [--threads N] [--csv FILE]

Every provider is timed in turn, round after round, in one process, so that a slow moment of the
machine falls on all of them; ratios are taken within a round, and their median and quartiles
printed. A provider whose result is wrong (against the float64 reference) is not timed.
"""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import deu
from deu import _native

# One unit of each of the ten subspaces.
TEN = [
    (0, 0, 0.7),
    (0, 0.8, 0),
    (0, 0.8, 0.6),
    (1.3, 0, 0),
    (0.5, 0, 0.9),
    (0.5, 0, -0.9),
    (0.7, 0.9, 0),
    (0.7, 0.3, 0.9),
    (1.0, 2.0, 1.001),
    (0.4, 1.3, 0.5),
]
ONE = TEN[7]
Provider = Callable[[Tensor], Tensor]


def layer(features: int, rows: list[tuple[float, float, float]], **settings: str) -> deu.DEU:
    """A layer whose units take the given (a, b, c) in turn."""
    made = deu.DEU(features, **settings)  # type: ignore[arg-type]
    with torch.no_grad():
        for i in range(features):
            made.a[i], made.b[i], made.c[i] = rows[i % len(rows)]
        made.c1.uniform_(-0.5, 0.5)
        made.c2.uniform_(-0.5, 0.5)
    return made


def cases() -> list[tuple[str, tuple[int, ...], torch.memory_format, dict[str, Provider]]]:
    image = (64, 64, 32, 32)
    big: dict[str, Provider] = {
        "GELU": nn.GELU(),
        "PReLU": nn.PReLU(64),
        "ReLU": nn.ReLU(),
        "SiLU": nn.SiLU(),
        "DEU random": deu.DEU(64),
        "DEU spread": deu.DEU(64, init="spread"),
        "DEU relu": deu.DEU(64, init="relu"),
        "DEU one subspace": layer(64, [ONE]),
        "DEU ten subspaces": layer(64, TEN),
        "DEU continuous random": deu.DEU(64, solution="continuous"),
        "DEU continuous spread": deu.DEU(64, init="spread", solution="continuous"),
    }
    small: dict[str, Provider] = {
        "GELU": nn.GELU(),
        "PReLU": nn.PReLU(16),
        "DEU random": deu.DEU(16),
        "DEU ten subspaces": layer(16, TEN),
        "DEU continuous random": deu.DEU(16, solution="continuous"),
    }
    return [
        ("(64, 64, 32, 32)", image, torch.contiguous_format, big),
        ("(64, 64, 32, 32) channels_last", image, torch.channels_last, big),
        ("(128, 16)", (128, 16), torch.contiguous_format, small),
    ]


def error(module: Provider, x: Tensor, grad: Tensor) -> float:
    """How far output and input gradient are from the float64 reference, relative to max(1, ·)."""
    if not isinstance(module, deu.DEU):
        return 0.0
    settings = {
        name: getattr(module, name)
        for name in (
            "dim",
            "solution",
            "eps",
            "sharpness",
            "max_exponent",
            "bound",
            "max_grad_norm",
        )
    }
    x = x[:2]
    truth_in = x.detach().double().requires_grad_()
    truth = deu.reference.deu(truth_in, *(p.double() for p in module.coefficients()), **settings)
    truth.backward(grad[:2].double())
    ours_in = x.detach().clone().requires_grad_()
    ours = module(ours_in)
    ours.backward(grad[:2])
    worst = 0.0
    for got, want in ((ours, truth), (ours_in.grad, truth_in.grad)):
        assert got is not None
        assert want is not None
        worst = max(worst, ((got - want).abs() / want.abs().clamp(min=1)).max().item())
    return worst


def saved_bytes(module: Provider, x: Tensor) -> int:
    """What a training step keeps for its backward pass."""
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        kept[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        module(x)
    return sum(kept.values())


def measure(
    providers: dict[str, Provider], x: Tensor, grad: Tensor, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in providers}
    parameters = {
        name: list(module.parameters()) if isinstance(module, nn.Module) else []
        for name, module in providers.items()
    }
    repeats = max(1, 400_000 // x.numel())  # small layers: many calls a timing
    for round_ in range(-1, rounds):
        for name, module in providers.items():
            forward = backward = 0.0
            for _ in range(repeats):
                # As an optimiser's zero_grad() leaves it.
                x.grad = None
                for parameter in parameters[name]:
                    parameter.grad = None
                start = time.perf_counter()
                y = module(x)
                middle = time.perf_counter()
                y.backward(grad)
                end = time.perf_counter()
                forward += middle - start
                backward += end - middle
            if round_ >= 0:
                times[name].append((forward / repeats, backward / repeats))
    return times


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--csv", help="also write every ratio to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    isa = _native.isas()[-1] if _native.isas() else "reference (no kernels)"
    print(
        f"{platform.machine()}, {options.threads} threads, kernels: {isa}, "
        f"PyTorch {torch.__version__}, deu {deu.__version__}, float32, {options.rounds} rounds"
    )
    rows = []
    for title, shape, memory_format, providers in cases():
        x = torch.randn(shape)
        grad = torch.randn(shape)
        if len(shape) == 4:
            x, grad = x.to(memory_format=memory_format), grad.to(memory_format=memory_format)
        x.requires_grad_()
        wrong = {n: e for n, m in providers.items() if (e := error(m, x, grad)) > 1e-5}
        for name, e in wrong.items():
            print(f"{title}: {name} is off by {e:.1e} and not timed")
        right = {n: m for n, m in providers.items() if n not in wrong}
        times = measure(right, x, grad, options.rounds)
        print(f"\n{title}")
        print(f"{'':24}{'ms':>8}{'forward+backward / GELU':>28}{'/ PReLU':>22}{'saved / GELU':>16}")
        gelu_bytes = saved_bytes(providers["GELU"], x)
        for name, module in right.items():
            total = [f + b for f, b in times[name]]
            by = {
                base: [t / (f + b) for t, (f, b) in zip(total, times[base], strict=True)]
                for base in ("GELU", "PReLU")
            }
            kept = saved_bytes(module, x) / gelu_bytes
            print(
                f"{name:24}{statistics.median(total) * 1e3:8.3f}{spread(by['GELU']):>28}"
                f"{spread(by['PReLU']):>22}{kept:16.3f}"
            )
            rows.append(
                [title, name, statistics.median(total)]
                + [statistics.median(by[b]) for b in ("GELU", "PReLU")]
                + [kept]
            )
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["case", "provider", "seconds", "over_gelu", "over_prelu", "saved_over_gelu"]
            )
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
