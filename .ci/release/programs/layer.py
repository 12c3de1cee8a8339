"""A step of training."""

import tape_core as tc
import tape_nn as nn

model = nn.Sequential([nn.Dense(4, activation="relu"), nn.Dense(1)])
optimizer = nn.Adam(0.01)
with tc.GradientTape() as tape:
    loss = tc.mean(model(tc.ones((3, 2))) ** 2)
variables = model.trainable_variables
optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
model.save_weights("weights.safetensors")
model.load_weights("weights.safetensors")
