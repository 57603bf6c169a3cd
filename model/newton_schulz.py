"""Coefficients of Newton-Schulz iterations: for each step (a, b, c) of X <- aX + (b A + c A^2) X, A = X X^T."""

from collections.abc import Sequence
from typing import Literal

Coefficients = Sequence[tuple[float, float, float]]

NewtonSchulzSet = Literal["standard", "dion", "polar_express"]

COEFFICIENTS: dict[NewtonSchulzSet, Coefficients] = {
    "standard": ((3.4445, -4.7750, 2.0315),) * 10,  # one set for every step (Jordan 2024): singular values end in about 0.7..1.2
    "dion": (  # one set a step, tighter around 1 (Ahn et al. 2025, arXiv 2504.05295)
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
    "polar_express": (  # greedy minimax for singular values from 1e-3 on (Amsel et al. 2025, arXiv 2505.16932)
        (8.28721201814563, -23.595886519098837, 17.300387312530933),
        (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
        (3.9486908534822946, -2.908902115951949, 0.5518191394370137),
        (3.3184196573706015, -2.488488024314874, 0.51004894012372),
        (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
        (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
        (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    ),
}
