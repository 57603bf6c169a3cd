"""Newton-Schulz: turning matrices towards their polar factor with matrix products alone."""

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from model.newton_schulz import Coefficients


def orthogonalized(x: Array, matrix_axes: tuple[int, int], coefficients: Coefficients, *, eps: float, dtype: DTypeLike) -> Array:
    """Every matrix in an array with its singular values driven to about 1: U V^T of U S V^T, roughly.

    Args:
        x: float32; all axes but matrix_axes stack matrices, each of which is treated by itself.
        coefficients: of each step.
        eps: added to the Frobenius norm that brings singular values below 1 first.
        dtype: of the products; the result is float32.
    """
    matrices = jnp.moveaxis(x, matrix_axes, (-2, -1))
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    wide = jnp.swapaxes(matrices, -2, -1) if is_tall else matrices  # the Gram matrix of the short side is the small one
    turned = (wide / (jnp.sqrt(jnp.sum(wide * wide, axis=(-2, -1), keepdims=True)) + eps)).astype(dtype)
    for a, b, c in coefficients:
        gram = turned @ jnp.swapaxes(turned, -2, -1)
        turned = a * turned + (b * gram + c * (gram @ gram)) @ turned
    done = turned.astype(jnp.float32)
    return jnp.moveaxis(jnp.swapaxes(done, -2, -1) if is_tall else done, (-2, -1), matrix_axes)
