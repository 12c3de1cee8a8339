"""ADBench's bundle adjustment: residuals of 31,843 observations and their sparse Jacobian, in blocks. Float64.

An observation sees a point through a camera: rotation, center, focal length, principal point, radial distortion. Its
two residuals depend on 11 + 3 + 1 numbers; a second kind of residual, 1 - w², on the weight alone.
"""

from __future__ import annotations

import numpy as np

from workloads import Data, Step

TOLERANCE = 1e-10
CAMERAS, POINTS, OBSERVATIONS = 49, 7_776, 31_843


def data(rng: np.random.Generator) -> Data:
    def normal(*shape: int, scale: float) -> np.ndarray:
        return rng.standard_normal(shape) * scale

    n = CAMERAS
    pieces = [
        normal(n, 3, scale=0.3),  # rotation, as axis times angle
        normal(n, 3, scale=1),  # center
        500 + normal(n, 1, scale=20),  # focal length
        normal(n, 2, scale=5),  # principal point
        normal(n, 2, scale=0.05),  # radial distortion
    ]
    return {
        "cameras": np.concatenate(pieces, axis=1),
        "points": normal(POINTS, 3, scale=1) + np.array([0, 0, 10]),
        "weights": 1 + normal(OBSERVATIONS, scale=0.1),
        "features": normal(OBSERVATIONS, 2, scale=20),
        "of_camera": np.arange(OBSERVATIONS) % CAMERAS,
        "of_point": np.arange(OBSERVATIONS) % POINTS,
    }


NAMES = ("cameras", "points", "weights", "features", "of_camera", "of_point")


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Faster than numpy.cross."""
    ax, ay, az = a.T
    bx, by, bz = b.T
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=1)


def skew(v: np.ndarray) -> np.ndarray:
    """The matrices of v × ."""
    x, y, z = v.T
    o = np.zeros_like(x)
    return np.stack([o, -z, y, z, o, -x, -y, x, o], axis=1).reshape(-1, 3, 3)


def with_numpy(data: Data) -> Step:
    cameras, points, weights, features, of_camera, of_point = (data[name] for name in NAMES)

    def step():
        # What a camera's observations share is computed once for the camera.
        r = cameras[:, :3]
        square = np.sum(r * r, axis=1)[:, None, None]
        theta = np.sqrt(square)
        k = skew(r) / theta
        rotation = np.eye(3) + np.sin(theta) * k + (1 - np.cos(theta)) * (k @ k)
        # dRv/dr = -R [v] turn (Gallego and Yezzi), and R [v] = [Rv] R
        turn = r[:, :, None] * r[:, None, :] + (rotation.swapaxes(1, 2) - np.eye(3)) @ skew(r)
        turn = rotation @ turn / square

        camera = cameras[of_camera]
        rotated = rotation[of_camera]
        seen = (rotated @ (points[of_point] - camera[:, 3:6])[:, :, None])[:, :, 0]
        depth = 1 / seen[:, 2]
        flat = seen[:, :2] * depth[:, None]
        squares = np.sum(flat * flat, axis=1)
        focal, k1, k2 = camera[:, 6], camera[:, 9], camera[:, 10]
        bent = 1 + squares * (k1 + k2 * squares)
        distorted = flat * bent[:, None]
        missed = distorted * focal[:, None] + camera[:, 7:9] - features
        residuals = weights[:, None] * missed

        scale = weights * focal
        dflat = flat[:, :, None] * flat[:, None, :] * (2 * (k1 + 2 * k2 * squares))[:, None, None]
        dflat[:, 0, 0] += bent
        dflat[:, 1, 1] += bent
        dflat *= (scale * depth)[:, None, None]
        dseen = np.empty((len(weights), 2, 3))
        dseen[:, :, :2] = dflat
        dseen[:, :, 2] = -np.sum(dflat * flat[:, None, :], axis=2)

        dpoints = dseen @ rotated
        dcameras = np.zeros((len(weights), 2, 11))
        by_angles = np.stack([cross(seen, dseen[:, 0]), cross(seen, dseen[:, 1])], axis=1)
        dcameras[:, :, :3] = by_angles @ turn[of_camera]
        dcameras[:, :, 3:6] = -dpoints
        dcameras[:, :, 6] = weights[:, None] * distorted
        dcameras[:, 0, 7] = dcameras[:, 1, 8] = weights
        dcameras[:, :, 9] = scale[:, None] * flat * squares[:, None]
        dcameras[:, :, 10] = dcameras[:, :, 9] * squares[:, None]
        return residuals, [1 - weights**2, dcameras, dpoints, missed, -2 * weights]

    return step


def with_autograd(data: Data) -> Step:
    import autograd
    import autograd.numpy as np

    cameras, points, weights, features, of_camera, of_point = (data[name] for name in NAMES)

    def cross(a, b):
        a, b = a.T, b.T
        return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], axis=1)

    def residuals(camera, point, weight):
        r, x = camera[:, :3], point - camera[:, 3:6]
        theta = np.sqrt(np.sum(r * r, axis=1, keepdims=True))
        axis, cos = r / theta, np.cos(theta)
        along = np.sum(axis * x, axis=1, keepdims=True) * (1 - cos)
        seen = x * cos + cross(axis, x) * np.sin(theta) + axis * along
        flat = seen[:, :2] / seen[:, 2:]
        squares = np.sum(flat * flat, axis=1, keepdims=True)
        bent = 1 + squares * (camera[:, 9:10] + camera[:, 10:11] * squares)
        return weight[:, None] * (flat * bent * camera[:, 6:7] + camera[:, 7:9] - features)

    def by_weight(weight):
        return 1 - weight**2

    def step():
        arguments = (cameras[of_camera], points[of_point], weights)
        pull, value = autograd.make_vjp(lambda a: residuals(*a))(arguments)
        # An observation's residuals depend on its own rows alone: one pull for each of the two.
        rows = [pull(np.broadcast_to(direction, value.shape)) for direction in np.eye(2)]
        blocks = [np.stack(pair, axis=1) for pair in zip(*rows, strict=True)]
        return value, [by_weight(weights), *blocks, autograd.elementwise_grad(by_weight)(weights)]

    return step


def torch_function(data: Data):
    import torch
    from torch.func import jacrev, vmap

    def residuals(camera, point, weight, feature):
        r, x = camera[:3], point - camera[3:6]
        theta = torch.sqrt(torch.sum(r * r))
        axis, cos = r / theta, torch.cos(theta)
        seen = x * cos + torch.linalg.cross(axis, x) * torch.sin(theta) + axis * ((axis * x).sum() * (1 - cos))
        flat = seen[:2] / seen[2]
        squares = torch.sum(flat * flat)
        bent = 1 + squares * (camera[9] + camera[10] * squares)
        missed = weight * (flat * bent * camera[6] + camera[7:9] - feature)
        return missed, missed

    def by_weight(weight):
        return 1 - weight**2, 1 - weight**2

    of_residuals = vmap(jacrev(residuals, argnums=(0, 1, 2), has_aux=True))
    of_weight = vmap(jacrev(by_weight, has_aux=True))

    def function(cameras, points, weights, features, of_camera, of_point):
        blocks, missed = of_residuals(cameras[of_camera], points[of_point], weights, features)
        slopes, other = of_weight(weights)
        return missed, [other, *blocks, slopes]

    return function, [torch.tensor(data[name]) for name in NAMES]


def jax_function(data: Data):
    import jax.numpy as jnp
    from jax import jacrev, vmap

    def residuals(camera, point, weight, feature):
        r, x = camera[:3], point - camera[3:6]
        theta = jnp.sqrt(jnp.sum(r * r))
        axis, cos = r / theta, jnp.cos(theta)
        seen = x * cos + jnp.cross(axis, x) * jnp.sin(theta) + axis * ((axis @ x) * (1 - cos))
        flat = seen[:2] / seen[2]
        squares = jnp.sum(flat * flat)
        bent = 1 + squares * (camera[9] + camera[10] * squares)
        missed = weight * (flat * bent * camera[6] + camera[7:9] - feature)
        return missed, missed

    def by_weight(weight):
        return 1 - weight**2, 1 - weight**2

    of_residuals = vmap(jacrev(residuals, argnums=(0, 1, 2), has_aux=True))
    of_weight = vmap(jacrev(by_weight, has_aux=True))

    def function(cameras, points, weights, features, of_camera, of_point):
        blocks, missed = of_residuals(cameras[of_camera], points[of_point], weights, features)
        slopes, other = of_weight(weights)
        return missed, [other, *blocks, slopes]

    return function, [jnp.asarray(data[name]) for name in NAMES]


def tensorflow_step(data: Data) -> Step:
    import tensorflow as tf

    cameras, points, weights = (tf.Variable(data[name]) for name in NAMES[:3])
    features, of_camera, of_point = (tf.constant(data[name]) for name in NAMES[3:])

    def residuals(camera, point, weight):
        r, x = camera[:, :3], point - camera[:, 3:6]
        theta = tf.norm(r, axis=1, keepdims=True)
        axis, cos = r / theta, tf.cos(theta)
        along = tf.reduce_sum(axis * x, axis=1, keepdims=True) * (1 - cos)
        seen = x * cos + tf.linalg.cross(axis, x) * tf.sin(theta) + axis * along
        flat = seen[:, :2] / seen[:, 2:]
        squares = tf.reduce_sum(flat * flat, axis=1, keepdims=True)
        bent = 1 + squares * (camera[:, 9:10] + camera[:, 10:11] * squares)
        return weight * (flat * bent * camera[:, 6:7] + camera[:, 7:9] - features)

    def step():
        camera, point, weight = tf.gather(cameras, of_camera), tf.gather(points, of_point), weights[:, None]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([camera, point, weight])
            missed = residuals(camera, point, weight)
            other = 1 - weight**2
        blocks = [tape.batch_jacobian(missed, source) for source in (camera, point, weight)]
        slopes = tape.gradient(other, weight)
        return missed, [other[:, 0], *blocks[:2], blocks[2][:, :, 0], slopes[:, 0]]

    return step


def with_tape(data: Data) -> Step:
    import tape_core as tc

    cameras, points, weights = (tc.Variable(data[name]) for name in NAMES[:3])
    features, of_camera, of_point = (tc.asarray(data[name]) for name in NAMES[3:])

    def residuals(camera, point, weight):
        r, x = camera[:, :3], point - camera[:, 3:6]
        theta = tc.linalg.vector_norm(r, axis=1, keepdims=True)
        axis, cos = r / theta, tc.cos(theta)
        along = tc.sum(axis * x, axis=1, keepdims=True) * (1 - cos)
        seen = x * cos + tc.linalg.cross(axis, x) * tc.sin(theta) + axis * along
        flat = seen[:, :2] / seen[:, 2:]
        squares = tc.sum(flat * flat, axis=1, keepdims=True)
        bent = 1 + squares * (camera[:, 9:10] + camera[:, 10:11] * squares)
        return weight * (flat * bent * camera[:, 6:7] + camera[:, 7:9] - features)

    def step():
        camera, point, weight = tc.take(cameras, of_camera, axis=0), tc.take(points, of_point, axis=0), weights[:, None]
        with tc.GradientTape(persistent=True) as tape:
            tape.watch([camera, point, weight])
            missed = residuals(camera, point, weight)
            other = 1 - weight**2
        blocks = [tape.batch_jacobian(missed, source) for source in (camera, point, weight)]
        by_weight = tape.gradient(other, weight)
        return missed, [other[:, 0], *blocks[:2], blocks[2][:, :, 0], by_weight[:, 0]]

    return step
