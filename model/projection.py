"""A matrix applied to every token: one product over all of them, and how its gradient is multiplied."""

import jax
import jax.numpy as jnp
from jax import Array

from model.architecture import KernelConfig


def apply(x: Array, matrix: Array, kernels: KernelConfig) -> Array:
    """x [..., width] @ matrix [width, out] in x's dtype.

    Tokens are one axis while they are multiplied: contracting two in the gradient costs a CPU a copy and 40% of its rate.
    """
    rows, matrix = x.reshape(-1, x.shape[-1]), matrix.astype(x.dtype)
    made = _turned(rows, matrix) if kernels.weight_gradients == "turned" else rows @ matrix
    return made.reshape(*x.shape[:-1], matrix.shape[-1])


@jax.custom_vjp
def _turned(rows: Array, matrix: Array) -> Array:
    return rows @ matrix


def _forward(rows: Array, matrix: Array) -> tuple[Array, tuple[Array, Array]]:
    return rows @ matrix, (rows, matrix)


def _backward(kept: tuple[Array, Array], pull: Array) -> tuple[Array, Array]:
    rows, matrix = kept
    return pull @ matrix.T, outer_sum(rows, pull).astype(matrix.dtype)


_turned.defvjp(_forward, _backward)


def outer_sum(a: Array, b: Array) -> Array:
    """Sum over rows of a (x) b: [rows, m], [rows, n] -> [m, n], accumulated in float32. For CPUs.

    XLA has two matrix products on a CPU, and gives the slower one, which asks for memory at each call, whatever contracts leading
    axes on both sides: hence the rows are turned over before, and the barrier keeps XLA from undoing it.
    """
    return jnp.matmul(jax.lax.optimization_barrier(a.T), b, preferred_element_type=jnp.float32)
