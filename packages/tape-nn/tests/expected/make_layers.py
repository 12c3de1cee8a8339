"""Make layers.json: outputs and gradients of PyTorch's layers, which those of tape_nn must equal.

python make_layers.py    # needs torch
"""

# ruff: noqa: B023 - each function is called before the loop goes on

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def make() -> list[dict[str, Any]]:
    import torch  # only here: pytest imports this file to look for doctests
    from torch import nn

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    cases: list[dict[str, Any]] = []

    def kernel(w: Tensor) -> Tensor:
        """(out, in, *lengths) to (*lengths, in, out)."""
        return w.permute(*range(2, w.ndim), 1, 0)

    def last(x: Tensor) -> Tensor:
        """Channels last."""
        return x.movedim(1, -1)

    def same(x: Tensor) -> Tensor:
        return x

    def thirds(w: Tensor) -> Tensor:
        """PyTorch's gates r, z, n to Keras' z, r, h, on the last axis."""
        r, z, n = w.chunk(3, -1)
        return torch.cat([z, r, n], -1)

    def case(
        name: str,
        arguments: dict[str, Any],
        inputs: dict[str, Tensor],
        variables: dict[str, tuple[list[Tensor], Callable[..., Tensor]]],
        run: Callable[..., Tensor],
        layout: Callable[[Tensor], Tensor] = same,
        **more: Any,
    ) -> None:
        """Variables: the parameters of PyTorch, and how one of tape_nn is made of them (and its gradient of theirs)."""
        inputs = {key: x.round(decimals=2) if x.is_floating_point() else x for key, x in inputs.items()}
        found = {key: x.clone().requires_grad_(x.is_floating_point()) for key, x in inputs.items()}
        y = run(**found)
        cotangent = torch.randn_like(y).round(decimals=1)
        y.backward(cotangent)
        entry = {
            "layer": name,
            "arguments": arguments,
            "inputs": {key: layout(x).tolist() for key, x in inputs.items()},
            "variables": {key: make(*parts).tolist() for key, (parts, make) in variables.items()},
            "cotangent": layout(cotangent).tolist(),
            "output": layout(y).tolist(),
            "input_gradients": {key: layout(x.grad).tolist() for key, x in found.items() if x.grad is not None},
            "variable_gradients": {
                key: make(*[part.grad for part in parts]).tolist()
                for key, (parts, make) in variables.items()
                if parts[0].requires_grad
            },
        }
        cases.append(entry | {key: value() for key, value in more.items()})

    def randomized(module: Any) -> Any:
        for parameter in module.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randn_like(parameter).round(decimals=2))
        return module

    m = randomized(nn.Linear(3, 2))
    both = {"kernel": ([m.weight], kernel), "bias": ([m.bias], same)}
    case("Dense", {"units": 2}, {"x": torch.randn(2, 4, 3)}, both, lambda x: m(x))

    for name, kind, size, given, sizes in (
        ("Conv1D", nn.Conv1d, (3,), {"stride": 2, "padding": 1, "groups": 2}, (4, 6)),
        ("Conv2D", nn.Conv2d, (2, 3), {"dilation": [1, 2], "stride": [2, 1]}, (3, 5, 6)),
        ("Conv3D", nn.Conv3d, (1, 2, 2), {"padding": [0, 1, 0]}, (2, 2, 3, 3)),
    ):
        c = randomized(kind(sizes[0], 4, size, **given))
        arguments = {"filters": 4, "kernel_size": size, **given}
        x = torch.randn(2, *sizes)
        case(
            name, arguments, {"x": x}, {"kernel": ([c.weight], kernel), "bias": ([c.bias], same)}, lambda x: c(x), last
        )
        arguments = {**arguments, "layout": "channels_first"}
        c.zero_grad()
        case(name, arguments, {"x": x}, {"kernel": ([c.weight], same), "bias": ([c.bias], same)}, lambda x: c(x))

    for n, sizes in ((1, (7,)), (2, (4, 5)), (3, (3, 4, 4))):
        pool = getattr(nn, f"MaxPool{n}d")(3, stride=2, padding=1)
        arguments = {"pool_size": 3, "stride": 2, "padding": 1}
        case(f"MaxPool{n}D", arguments, {"x": torch.randn(2, 2, *sizes)}, {}, lambda x: pool(x), last)
        mean = getattr(nn, f"AvgPool{n}d")(3, stride=2, padding=1, count_include_pad=False)
        case(f"AvgPool{n}D", arguments, {"x": torch.randn(2, 2, *sizes)}, {}, lambda x: mean(x), last)

    for training in (True, False):
        b = randomized(nn.BatchNorm2d(3, eps=1e-3, momentum=0.25))
        b.running_mean.copy_(torch.tensor([0.5, -1, 0]))
        b.running_var.copy_(torch.tensor([0.5, 1, 2]))
        b.train(training)
        x = torch.randn(4, 3, 2, 2).round(decimals=2)
        before = b.running_var.clone()
        variables = {
            "gamma": ([b.weight], same),
            "beta": ([b.bias], same),
            "moving_mean": ([b.running_mean.clone()], same),
            "moving_variance": ([before], same),
        }
        # PyTorch's moving variance is of the unbiased kind.
        variance = 0.75 * before + 0.25 * x.var((0, 2, 3), correction=0) if training else before
        case(
            "BatchNorm",
            {"momentum": 0.75},
            {"x": x},
            variables,
            lambda x: b(x),
            last,
            training=lambda: training,
            after=lambda: {"moving_mean": b.running_mean.tolist(), "moving_variance": variance.tolist()},
        )

    for axes, shape in ((-1, (4,)), ((1, 2), (3, 4))):
        norm = randomized(nn.LayerNorm(shape, eps=1e-3))
        pair = {"gamma": ([norm.weight], same), "beta": ([norm.bias], same)}
        case("LayerNorm", {"axis": axes}, {"x": torch.randn(2, 3, 4)}, pair, lambda x: norm(x))
    norm = randomized(nn.LayerNorm((3,), eps=1e-3))  # over an axis that is not the last
    pair = {"gamma": ([norm.weight], same), "beta": ([norm.bias], same)}
    case("LayerNorm", {"axis": 1}, {"x": torch.randn(2, 3, 4)}, pair, lambda x: norm(x.mT).mT)
    rms = randomized(nn.RMSNorm(4, eps=1e-6))
    case("RMSNorm", {}, {"x": torch.randn(2, 3, 4)}, {"scale": ([rms.weight], same)}, lambda x: rms(x))

    table = randomized(nn.Embedding(6, 3))
    ids = torch.tensor([[1, 4, 1], [0, 5, 1]])
    arguments = {"input_dim": 6, "output_dim": 3}
    case("Embedding", arguments, {"ids": ids}, {"embeddings": ([table.weight], same)}, lambda ids: table(ids))

    for sequences in (True, False):
        lstm = randomized(nn.LSTM(3, 4, batch_first=True))
        # The two biases are added up; the gradient is that of either.
        variables = {
            "kernel": ([lstm.weight_ih_l0], kernel),
            "recurrent_kernel": ([lstm.weight_hh_l0], kernel),
            "bias": ([lstm.bias_ih_l0, lstm.bias_hh_l0], lambda a, b: a + b),
        }
        inputs = {"x": torch.randn(2, 5, 3), "h": torch.randn(2, 4), "c": torch.randn(2, 4)}

        def run_lstm(x: Tensor, h: Tensor, c: Tensor) -> Tensor:
            y, (h, c) = lstm(x, (h[None], c[None]))
            return y if sequences else torch.cat([h[0], c[0]], -1)

        case("LSTM", {"units": 4, "return_sequences": sequences}, inputs, variables, run_lstm)
        cases[-1]["variable_gradients"]["bias"] = lstm.bias_ih_l0.grad.tolist()

        gru = randomized(nn.GRU(3, 4, batch_first=True))
        variables = {
            "kernel": ([gru.weight_ih_l0], lambda w: thirds(kernel(w))),
            "recurrent_kernel": ([gru.weight_hh_l0], lambda w: thirds(kernel(w))),
            "bias": ([gru.bias_ih_l0, gru.bias_hh_l0], lambda a, b: thirds(torch.stack([a, b]))),
        }
        inputs = {"x": torch.randn(2, 5, 3), "h": torch.randn(2, 4)}

        def run_gru(x: Tensor, h: Tensor) -> Tensor:
            y, h = gru(x, h[None])
            return y if sequences else h[0]

        case("GRU", {"units": 4, "return_sequences": sequences}, inputs, variables, run_gru)

    for masked in ("none", "causal", "mask"):
        heads, width = 2, 6
        mha = randomized(nn.MultiheadAttention(width, heads, kdim=4, vdim=5, batch_first=True))
        variables = {
            f"{name}_kernel": ([weight], lambda w: kernel(w).reshape(w.shape[1], heads, -1))
            for name, weight in (("query", mha.q_proj_weight), ("key", mha.k_proj_weight), ("value", mha.v_proj_weight))
        }
        for k, name in enumerate(("query", "key", "value")):
            variables[f"{name}_bias"] = ([mha.in_proj_bias], lambda b, k=k: b.chunk(3)[k].reshape(heads, -1))
        variables["output_kernel"] = ([mha.out_proj.weight], lambda w: kernel(w).reshape(heads, -1, width))
        variables["output_bias"] = ([mha.out_proj.bias], same)
        inputs = {"query": torch.randn(2, 3, width), "value": torch.randn(2, 4, 5), "key": torch.randn(2, 4, 4)}
        allowed = torch.rand(2, 3, 4) > 0.4
        allowed[..., 0] = True
        if masked == "causal":
            allowed = torch.ones(2, 3, 4, dtype=torch.bool).tril()

        def run_mha(query: Tensor, value: Tensor, key: Tensor) -> Tensor:
            refused = None if masked == "none" else ~allowed.repeat_interleave(heads, 0)
            return mha(query, key, value, attn_mask=refused, need_weights=False)[0]

        arguments = {"num_heads": heads, "key_dim": 3}
        call = {"none": {}, "causal": {"use_causal_mask": True}, "mask": {"attention_mask": allowed.tolist()}}[masked]
        case("MultiHeadAttention", arguments, inputs, variables, run_mha, call=lambda: call)

    return cases


def short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: short(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [short(part) for part in value]
    return float(f"{value:.13g}") if isinstance(value, float) else value


if __name__ == "__main__":
    path = Path(__file__).with_name("layers.json")
    path.write_text("[\n" + ",\n".join(json.dumps(short(entry)) for entry in make()) + "\n]\n")
