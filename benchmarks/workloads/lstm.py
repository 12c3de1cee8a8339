"""ADBench's LSTM: two layers without matrix products, 14 bits a character, 128 steps as Python loops. Float64.

A layer has four gates; forget and output gate see the input, the other two the hidden state. The value is the mean
negative log-likelihood of the next character.
"""

from __future__ import annotations

import numpy as np

from workloads import Data, Step

TOLERANCE = 1e-10
LAYERS, BITS, STEPS = 2, 14, 128


def data(rng: np.random.Generator) -> Data:
    return {
        "main": rng.standard_normal((LAYERS, 2, 4 * BITS)),  # weights and biases of each layer
        "extra": rng.standard_normal((3, BITS)),  # weights of the input and of the output, biases of the output
        "state": rng.standard_normal((LAYERS, 2, BITS)),  # hidden and cell
        "sequence": rng.integers(0, 2, (STEPS + 1, BITS)).astype(np.float64),
    }


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def with_numpy(data: Data) -> Step:
    main, extra, state, sequence = (data[name] for name in ("main", "extra", "state", "sequence"))
    b, count = BITS, STEPS * BITS

    def step():
        states = [(hidden, cell) for hidden, cell in state]
        kept, total = [], 0.0
        for t in range(STEPS):
            x = sequence[t] * extra[0]
            layers = []
            for i, (hidden, cell) in enumerate(states):
                ins = np.concatenate((x, hidden, x, hidden))
                gates = ins * main[i, 0] + main[i, 1]
                opened, change = sigmoid(gates[: 3 * b]), np.tanh(gates[3 * b :])
                forget, ingate, outgate = opened[:b], opened[b : 2 * b], opened[2 * b :]
                new = cell * forget + ingate * change
                bent = np.tanh(new)
                x = outgate * bent
                layers.append((ins, opened, change, cell, bent))
                states[i] = (x, new)
            y = x * extra[1] + extra[2]
            exp = np.exp(y)
            sums = exp.sum() + 2
            gold = sequence[t + 1]
            total += np.dot(gold, y) - gold.sum() * np.log(sums)
            kept.append((layers, x, exp, sums))

        dmain, dextra = np.zeros_like(main), np.zeros_like(extra)
        dstates = [(np.zeros(b), np.zeros(b)) for _ in range(LAYERS)]
        dgates = np.empty(4 * b)
        for t in reversed(range(STEPS)):
            layers, x, exp, sums = kept[t]
            gold = sequence[t + 1]
            dy = (exp * (gold.sum() / sums) - gold) / count
            dextra[1] += dy * x
            dextra[2] += dy
            dx = dy * extra[1]
            for i in reversed(range(LAYERS)):
                ins, opened, change, cell, bent = layers[i]
                forget, ingate, outgate = opened[:b], opened[b : 2 * b], opened[2 * b :]
                dhidden, dcell = dstates[i]
                dx = dx + dhidden
                dcell = dcell + dx * outgate * (1 - bent * bent)
                dgates[:b] = dcell * cell
                dgates[b : 2 * b] = dcell * change
                dgates[2 * b : 3 * b] = dx * bent
                dgates[: 3 * b] *= opened * (1 - opened)
                dgates[3 * b :] = dcell * ingate * (1 - change * change)
                dmain[i, 0] += dgates * ins
                dmain[i, 1] += dgates
                dins = dgates * main[i, 0]
                dstates[i] = (dins[b : 2 * b] + dins[3 * b :], dcell * forget)
                dx = dins[:b] + dins[2 * b : 3 * b]
            dextra[0] += dx * sequence[t]
        return -total / count, [dmain, dextra]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    state, sequence, b = data["state"], data["sequence"], BITS

    def layer(weight, bias, hidden, cell, x):
        gates = np.concatenate((x, hidden, x, hidden)) * weight + bias
        forget, ingate, outgate = (sigmoid(gates[k * b : (k + 1) * b]) for k in range(3))
        cell = cell * forget + ingate * np.tanh(gates[3 * b :])
        return outgate * np.tanh(cell), cell

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def loss(parameters):
        main, extra = parameters
        states, total = [(hidden, cell) for hidden, cell in state], 0.0
        for t in range(STEPS):
            x = sequence[t] * extra[0]
            for i in range(LAYERS):
                states[i] = layer(main[i, 0], main[i, 1], *states[i], x)
                x = states[i][0]
            y = x * extra[1] + extra[2]
            y = y - np.log(np.sum(np.exp(y)) + 2)
            total = total + np.sum(sequence[t + 1] * y)
        return -total / (STEPS * BITS)

    value_and_grad = autograd.value_and_grad(loss)
    return lambda: value_and_grad([data["main"], data["extra"]])


def torch_loss(data: Data):
    import torch

    state, sequence = torch.tensor(data["state"]), torch.tensor(data["sequence"])

    def layer(weight, bias, hidden, cell, x):
        gates = torch.cat((x, hidden, x, hidden)) * weight + bias
        forget, ingate, outgate, change = gates.split(BITS)
        cell = cell * torch.sigmoid(forget) + torch.sigmoid(ingate) * torch.tanh(change)
        return torch.sigmoid(outgate) * torch.tanh(cell), cell

    def loss(main, extra):
        states, total = [(state[i, 0], state[i, 1]) for i in range(LAYERS)], 0.0
        for t in range(STEPS):
            x = sequence[t] * extra[0]
            for i in range(LAYERS):
                states[i] = layer(main[i, 0], main[i, 1], *states[i], x)
                x = states[i][0]
            y = x * extra[1] + extra[2]
            y = y - torch.log(torch.sum(torch.exp(y)) + 2)
            total = total + torch.sum(sequence[t + 1] * y)
        return -total / (STEPS * BITS)

    return loss, [torch.tensor(data["main"]), torch.tensor(data["extra"])]


def jax_loss(data: Data):
    import jax
    import jax.numpy as jnp

    def layer(weight, bias, hidden, cell, x):
        gates = jnp.concatenate((x, hidden, x, hidden)) * weight + bias
        forget, ingate, outgate, change = jnp.split(gates, 4)
        cell = cell * jax.nn.sigmoid(forget) + jax.nn.sigmoid(ingate) * jnp.tanh(change)
        return jax.nn.sigmoid(outgate) * jnp.tanh(cell), cell

    def loss(parameters, state, sequence):
        main, extra = parameters
        states, total = [(state[i, 0], state[i, 1]) for i in range(LAYERS)], 0.0
        for t in range(STEPS):
            x = sequence[t] * extra[0]
            for i in range(LAYERS):
                states[i] = layer(main[i, 0], main[i, 1], *states[i], x)
                x = states[i][0]
            y = x * extra[1] + extra[2]
            y = y - jnp.log(jnp.sum(jnp.exp(y)) + 2)
            total = total + jnp.sum(sequence[t + 1] * y)
        return -total / (STEPS * BITS)

    state, sequence = jnp.asarray(data["state"]), [jnp.asarray(bits) for bits in data["sequence"]]
    return loss, [jnp.asarray(data["main"]), jnp.asarray(data["extra"])], [state, sequence]


def tensorflow_loss(data: Data):
    import tensorflow as tf

    state, sequence = tf.constant(data["state"]), [tf.constant(bits) for bits in data["sequence"]]
    main, extra = variables = [tf.Variable(data["main"]), tf.Variable(data["extra"])]

    def layer(weight, bias, hidden, cell, x):
        gates = tf.concat([x, hidden, x, hidden], axis=0) * weight + bias
        forget, ingate, outgate, change = tf.split(gates, 4)
        cell = cell * tf.sigmoid(forget) + tf.sigmoid(ingate) * tf.tanh(change)
        return tf.sigmoid(outgate) * tf.tanh(cell), cell

    def loss():
        states, total = [(state[i, 0], state[i, 1]) for i in range(LAYERS)], 0.0
        for t in range(STEPS):
            x = sequence[t] * extra[0]
            for i in range(LAYERS):
                states[i] = layer(main[i, 0], main[i, 1], *states[i], x)
                x = states[i][0]
            y = x * extra[1] + extra[2]
            y = y - tf.math.log(tf.reduce_sum(tf.exp(y)) + 2)
            total = total + tf.reduce_sum(sequence[t + 1] * y)
        return -total / (STEPS * BITS)

    return loss, variables


def with_tape(data: Data) -> Step:
    import tape_core as tc

    state, sequence = tc.asarray(data["state"]), tc.asarray(data["sequence"])
    main, extra = tc.Variable(data["main"]), tc.Variable(data["extra"])

    def layer(weight, bias, hidden, cell, x):
        gates = tc.concat([x, hidden, x, hidden]) * weight + bias
        forget, ingate, outgate, change = tc.split(gates, 4)
        cell = cell * tc.sigmoid(forget) + tc.sigmoid(ingate) * tc.tanh(change)
        return tc.sigmoid(outgate) * tc.tanh(cell), cell

    def step():
        with tc.GradientTape() as tape:
            states, total = [(state[i, 0], state[i, 1]) for i in range(LAYERS)], 0.0
            for t in range(STEPS):
                x = sequence[t] * extra[0]
                for i in range(LAYERS):
                    states[i] = layer(main[i, 0], main[i, 1], *states[i], x)
                    x = states[i][0]
                y = x * extra[1] + extra[2]
                y = y - tc.log(tc.sum(tc.exp(y)) + 2)
                total = total + tc.sum(sequence[t + 1] * y)
            value = -total / (STEPS * BITS)
        return value, tape.gradient(value, [main, extra])

    return step
