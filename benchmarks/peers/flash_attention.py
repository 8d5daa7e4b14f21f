"""Times PyTorch's fused attention (cuDNN's and its flash attention) at the shapes of gpu_flash.cu.

Forward and backward apart, bf16, median of 20 by CUDA events, inputs taken in turn from three sets.
cuDNN takes grouped heads as they are; the flash backend gets them repeated beforehand.
"""

import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SHAPES = [  # batch, seq, heads, kv heads, head_dim, causal
    (8, 128, 8, 4, 32, True),
    (8, 128, 8, 4, 64, True),
    (16, 512, 16, 8, 64, True),
    (32, 512, 16, 16, 64, True),
    (16, 1024, 16, 16, 64, True),
    (8, 2048, 16, 16, 64, True),
    (2, 8192, 16, 16, 64, True),
    (2, 8192, 16, 16, 64, False),
    (8, 1024, 16, 8, 128, True),
    (32, 512, 16, 16, 128, True),
    (16, 1024, 16, 16, 128, True),
    (8, 2048, 16, 16, 128, True),
    (2, 8192, 16, 16, 128, True),
    (2, 8192, 16, 16, 128, False),
]
BACKENDS = [("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)]


def median_us(calls):
    """Median time of a call on the GPU. A matrix product ahead keeps the host's time out of it."""
    block = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    times = []
    for run in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        block @ block
        begin.record()
        calls[run % len(calls)]()
        end.record()
        end.synchronize()
        if run >= 3:
            times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def heads(batch, seq, n_heads, dim):
    """[batch, heads, seq, dim] whose memory is [batch, seq, heads, dim], as a model's products."""
    x = torch.randn(batch, seq, n_heads, dim, device="cuda", dtype=torch.bfloat16)
    return x.transpose(1, 2).detach().requires_grad_()


def measure(shape, name, backend):
    batch, seq, n_heads, n_kv_heads, dim, causal = shape
    if name == "flash":
        n_kv_heads = n_heads
    forwards, backwards = [], []
    with sdpa_kernel(backend):
        for _ in range(3):
            q = heads(batch, seq, n_heads, dim)
            k, v = (heads(batch, seq, n_kv_heads, dim) for _ in range(2))

            def forward(q=q, k=k, v=v):
                return scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=n_kv_heads != n_heads
                )

            y = forward()
            dy = torch.randn_like(y)
            forwards.append(forward)
            backwards.append(
                lambda y=y, q=q, k=k, v=v, dy=dy: torch.autograd.grad(
                    y, (q, k, v), dy, retain_graph=True
                )
            )
        forward_us, backward_us = median_us(forwards), median_us(backwards)
    flops = 4 * batch * n_heads * seq * seq * dim / (2 if causal else 1)
    return (
        f"{name} fwd {forward_us:8.1f} us {flops / forward_us * 1e-6:6.1f} TF/s "
        f"bwd {backward_us:8.1f} us {2.5 * flops / backward_us * 1e-6:6.1f} TF/s"
    )


def main():
    print(torch.__version__, "cuDNN", torch.backends.cudnn.version())
    for shape in SHAPES:
        batch, seq, n_heads, n_kv_heads, dim, causal = shape
        title = f"B{batch} S{seq:<5} H{n_heads}/{n_kv_heads} d{dim:<3} {'causal' if causal else 'full'}"
        cells = []
        for name, backend in BACKENDS:
            try:
                cells.append(measure(shape, name, backend))
            except RuntimeError as error:
                cells.append(f"{name}: {str(error).splitlines()[0][:60]}")
        print(f"{title:34}", " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
